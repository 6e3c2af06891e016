"""Bugs in one of the two engines, by which they must part; see table.py for the form."""

MIRROR = """
# a sum that is no mean
raw/average.py test_raw_reduce.py::test_by_hand[2-three_gradients]
-gradients]) * (1 / dist.get_world_size())
+gradients])
# raw's ring loses a share
raw/average.py test_raw_reduce.py::test_by_hand[2-ring_of_any_size]
-received + arrived if adds else arrived
+arrived
# raw clips before the sum
raw/step.py test_raw_reduce.py::test_every_method_trains_to_the_same_weights
-        trainer.average()
-        before_update(trainer, optimizer)
+        before_update(trainer, optimizer)
# raw weighs each batch of a step alike
raw/step.py test_raw.py::test_what_both_engines_could_take_for_granted
-/ share.step_total)
+/ (share.total * accumulate))
# a rank of raw takes a contiguous part of the batch
raw/data.py test_raw.py::test_what_both_engines_could_take_for_granted
-first, mine = number - number % accumulate, ids[self.rank :: self.world]
+first, mine = number - number % accumulate, ids.tensor_split(self.world)[self.rank]
# raw averages the values of ranks in place of samples
raw/log.py test_raw.py::test_what_both_engines_could_take_for_granted
-    return None if not count else total / count if how == "mean" else total
+    return None if not count else sum(a / b for a, b in pairs if b) / len(pairs) if how == "mean" else total
# raw steps a schedule of steps by epochs
raw/step.py test_raw.py::test_what_both_engines_could_take_for_granted
-"step": (step_ends, index)
+"step": (epoch_ends, index)
# raw draws an evaluation from the generators of training
raw/run.py test_raw.py::test_what_both_engines_could_take_for_granted
-@preserved_generators()
+
# the engine alone has another order
engine/loaders/map_loader.py test_raw.py::test_what_both_engines_could_take_for_granted
-torch.Generator().manual_seed(seed + epoch)
+torch.Generator().manual_seed(seed + 2 * epoch)
# the engine alone weighs each batch of a step alike
engine/step.py test_raw.py::test_what_both_engines_could_take_for_granted
-(share.step_samples or share.samples * batches)
+(share.samples * batches)
# the engine alone logs means over batches
engine/log.py test_raw.py::test_what_both_engines_could_take_for_granted
-float(self.samples if batch_size is None else batch_size) if self.samples
+1.0 if self.samples
# raw steps a schedule whatever its frequency
raw/step.py test_raw.py::test_what_both_engines_could_take_for_granted
-ends and (number + 1) % schedule.frequency == 0 and
+ends and
# raw goes backward past a module's own backward
raw/step.py test_raw.py::test_what_both_engines_could_take_for_granted
-        module.backward(loss / accumulate * factor)
+        (loss / accumulate * factor).backward()
# the fast loop goes backward past a module's own backward
engine/loop.py test_raw.py::test_what_both_engines_could_take_for_granted
-trainer.lightning_module.backward(loss if batches == 1 else loss / batches)
+(loss if batches == 1 else loss / batches).backward()
# raw counts what rank 0 alone logs on every rank
raw/log.py test_raw.py::test_what_both_engines_could_take_for_granted
-count = 0.0 if get("rank_zero_only") and not self.trainer.is_global_zero else count
+count = count
# the engine counts what rank 0 alone logs on every rank
engine/log.py test_raw.py::test_what_both_engines_could_take_for_granted
-or (rank_zero_only and self.rank):
+:
# raw averages what an epoch's end logs over ranks
raw/log.py test_raw.py::test_what_both_engines_could_take_for_granted
-count = float(self.epoch_samples.get(self.stage, 0) or 1)
+count = 1.0
# the engine averages what an epoch's end logs over ranks
engine/log.py test_raw.py::test_what_both_engines_could_take_for_granted
-weight = float(self.epoch_samples.get(self.stage, 0)) or 1.0
+weight = 1.0
# raw counts steps up to max_steps that the run does not have
raw/trainer.py test_raw.py::test_what_both_engines_could_take_for_granted
-min(total or most, total if most == -1 else most)
+total if most == -1 else most
# raw forgets what is best within an epoch
raw/record.py test_raw.py::test_what_both_engines_could_take_for_granted
-            self.update_best(self.epoch_values)
-            self.epoch_values
+            self.epoch_values
# the engine forgets what is best within an epoch
engine/results.py test_raw.py::test_what_both_engines_could_take_for_granted
-        self._update_best(self.epoch_values)
-        self.epoch_values
+        self.epoch_values
# samples after a checkpoint within an epoch have the positions of its first batches
runs/record/__init__.py test_raw.py::test_what_both_engines_could_take_for_granted
-self._begin(self.first_batch + len(self.batches), carried)
+self._begin(0, carried)
# raw calls on_before_zero_grad for each batch
raw/step.py test_raw.py::test_what_both_engines_could_take_for_granted
-        if index % accumulate == 0:
-            trainer.divisor = None
-            module.on_before_zero_grad(optimizer)
+        module.on_before_zero_grad(optimizer)
+        if index % accumulate == 0:
+            trainer.divisor = None
# the fast loop calls on_before_zero_grad for each batch
engine/loop.py test_raw.py::test_what_both_engines_could_take_for_granted
-            if batch_idx % batches == 0:
-                progress.zero_grad.increment_ready()
-                hooks.call("on_before_zero_grad", optimizer)
+            hooks.call("on_before_zero_grad", optimizer)
+            if batch_idx % batches == 0:
+                progress.zero_grad.increment_ready()
# raw rounds a share of batches
raw/data.py test_raw.py::test_what_both_engines_could_take_for_granted
-int(self.limit * batches)
+round(self.limit * batches)
# the engine rounds a share of batches
engine/loaders/__init__.py test_raw.py::test_what_both_engines_could_take_for_granted
-int(self.limit * batches)
+round(self.limit * batches)
"""
