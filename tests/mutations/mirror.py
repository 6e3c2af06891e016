"""Bugs in one of the two engines, by which they must part; see table.py for the form."""

MIRROR = """
# a sum that is no mean
raw/step.py test_raw_reduce.py::test_by_hand[2-three_gradients]
-gradients]) * (1 / dist.get_world_size())
+gradients])
# raw's ring loses a share
raw/step.py test_raw_reduce.py::test_by_hand[2-ring_of_any_size]
-received + arrived if adds else arrived
+arrived
# raw clips before the sum
raw/step.py test_raw_reduce.py::test_every_method_trains_to_the_same_weights[2-32-true-0.0]
-        trainer.average()
-        before_update(trainer, optimizer)
+        before_update(trainer, optimizer)
# raw weighs each batch of a step alike
raw/step.py test_parity_matrix.py::test_cell
-/ share.step_total)
+/ (share.total * accumulate))
# a rank of raw takes a contiguous part of the batch
raw/data.py test_parity_matrix.py::test_cell
-first, mine = number - number % accumulate, ids[self.rank :: self.world]
+first, mine = number - number % accumulate, ids.tensor_split(self.world)[self.rank]
# raw averages the values of ranks in place of samples
raw/record.py test_parity_matrix.py::test_cell
-    return None if not count else total / count if how == "mean" else total
+    return None if not count else sum(a / b for a, b in pairs if b) / len(pairs) if how == "mean" else total
# raw steps a schedule of steps by epochs
raw/step.py test_parity_matrix.py::test_cell
-"step": (step_ends, index)
+"step": (epoch_ends, index)
# raw draws an evaluation from the generators of training
raw/run.py test_parity_matrix.py::test_cell
-@preserved_generators()
+
# the engine alone has another order
engine/loaders/map_loader.py test_parity_matrix.py::test_cell
-torch.Generator().manual_seed(seed + epoch)
+torch.Generator().manual_seed(seed + 2 * epoch)
# the engine alone weighs each batch of a step alike
engine/step.py test_parity_matrix.py::test_cell
-(share.step_samples or share.samples * batches)
+(share.samples * batches)
# the engine alone logs means over batches
engine/log.py test_parity_matrix.py::test_cell
-float(self.samples if batch_size is None else batch_size) if self.samples
+1.0 if self.samples
"""
