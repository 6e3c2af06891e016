"""Bugs in what trains: steps, engines, strategies, batches; see table.py for the form."""

TRAINING = """
# buffers that are no BatchNorm's drift from rank to rank
engine/step.py test_bug_reports.py::test_ranks
-        if self.shared_buffers and
+        if False and
# an epoch ends without a word
base/private_api/lightning.py test_bug_reports.py::test_stop_iteration_is_an_error[loss-lightning]
-            if frame.f_globals["__name__"].startswith(ENDS_DATA):
+            if True:
# samples that a collate function drops count
base/structures.py test_bug_reports.py::test_samples_that_a_collate_function_drops_do_not_count
-else min(samples, *lengths)
+else samples
# tensors of unequal shapes are gathered
engine/step.py test_user_errors.py::test_how_a_rank_of_a_module_ends[gathers-63]
-        if any(each != shapes for each in ranks):
+        if False:
# a dropped batch is kept
plan/step_plan.py test_step_plan.py::test_total_steps
-return samples // batch_size if drop_last else -(-samples // batch_size)
+return -(-samples // batch_size)
# an untested Lightning under the fast loop
engine/__init__.py test_private_api.py::test_an_untested_lightning_trains_to_the_same_digest
-if lightning.__version__ in private.TESTED:
+if True:
# a plateau schedule misses its step behind an epoch that was resumed within
engine/training.py test_trainer_keys_modules.py::test_a_limited_run_resumes_as_an_unlimited_one
-        if trainer.fit_loop.restarting:  #
+        if False:  #
# an evaluation is another in each epoch
engine/loaders/__init__.py test_data_samples.py::test_an_evaluation_is_the_same_in_each_epoch
-return self.epoch if self.training and not self.fixed else 0
+return self.epoch
# what is overfitted is shuffled
engine/loaders/map_loader.py test_trainer_keys_modules.py::test_overfitting_takes_the_same_batches_in_each_epoch
-if self.fixed or kind is
+if kind is
# a loader's last batch is kept that it drops
engine/loaders/map_loader.py test_user_module.py::test_evaluations_have_a_separate_batch_size
-self.drop_last = self.regular and sampler.drop_last
+self.drop_last = False
# ranks may read other streams
engine/loaders/stream_loader.py test_iterable_data.py::test_ranks_that_read_different_samples_are_rejected
-if self.is_checked or not dist.is_initialized():
+if True:
# an untested convolution has its channels last
launch/memory.py test_memory_format.py::test_unusual_nets_stay_contiguous_on_a_cpu
-is_plain(layer) if on_cpu else
+True if on_cpu else
# a plateau's rate is lowered while the accuracy rises
models/optimizers.py test_models_optimizers.py::test_a_plateau_looks_at_the_monitor
-"max" if str(monitor)
+"min" if str(monitor)
# outputs that are no class of the data are taken for the last class
engine/callbacks/__init__.py test_callbacks_monitoring.py::test_counts_of_batches
-predicted.where((predicted >= 0) & (predicted < classes), classes)
+predicted.clamp(0, classes - 1)
# F1 is not the mean of the classes
models/classifier.py test_models.py::test_a_classifier_by_hand
-MulticlassF1Score(**options)
+MulticlassF1Score(average="micro", **options)
# outputs beyond the classes are predicted
models/classifier.py test_models.py::test_outputs_beyond_the_classes_are_never_predicted
-logits.detach()[:, : self.num_classes].argmax(1)
+logits.detach().argmax(1)
# perplexity is a loss
models/language_model.py test_models.py::test_a_language_model_by_hand
-(self.loss_sum / self.count).exp()
+self.loss_sum / self.count
# each token is its own target
models/language_model.py test_models.py::test_a_language_model_by_hand
-parts[0][:, :-1], parts[0][:, 1:]
+parts[0][:, :-1], parts[0][:, :-1]
# a schedule of the whole run is too long
models/optimizers.py test_models_optimizers.py::test_a_schedule_of_the_whole_run_is_told_its_length
-module.trainer.estimated_stepping_batches
+module.trainer.estimated_stepping_batches + 1
# outputs of a wrong shape are taken
models/regressor.py test_models.py::test_a_wrong_batch_is_refused_in_a_sentence
-if shape_of(outputs) != targets.shape:
+if False:
# an explicit null is filled in
plan/targets/locate.py test_from_data.py::test_what_is_given_stays_and_so_does_an_explicit_null
-and each not in target
+and target.get(each) is None
# a net of classes is not told their number
plan/targets/locate.py test_from_data.py::test_the_number_of_classes_stands_for_that_of_the_outputs
-known["num_outputs"] or known["num_classes"]
+known["num_outputs"]
# an evaluation draws from the generators of training
engine/evaluation.py test_seeding.py::test_training_does_not_depend_on_when_it_is_validated
-        restore_random_state(session.random, session.plan.strategy.devices(session.plan))
+
# a rank in one process draws as rank 0 in an evaluation
strategies/parallel/virtual_ranks.py test_strategies_virtual.py::test_the_noise_and_the_buffers_of_each_rank
-seed_by(*self.evaluation, rank)
+seed_by(*self.evaluation, 0)
# a module's file seeds the generators when it is imported
plan/targets/locate.py test_seeding.py::test_only_the_runs_seed_counts
-, preserve_generators():
+:
# Lightning seeds the ranks by what seed_everything has left
engine/session.py test_seeding.py::test_only_the_runs_seed_counts
-        seed_rank(plan.seed, plan.data_rank(rank))  #
+        #
# a rank of a pipeline keeps its own gradient of a weight that others use
strategies/parallel/pipeline.py test_parallel_pipeline.py::test_parts_compute_what_the_net_does
-            dist.all_reduce(gradient, group=group)
+            gradient = gradient * 1
# what was accumulated of a weight that others use is added by each of them
strategies/parallel/pipeline.py test_parallel_pipeline.py::test_parts_compute_what_the_net_does
-            parameter.grad = None
+            pass
# biases in no group
models/optimizers.py test_optimizers.py::test_every_parameter_is_in_one_group
-        {"params": [parameter for parameter in parameters if parameter.dim() <= 1], "weight_decay": 0.0},
+
# biases decay
models/optimizers.py test_optimizers.py::test_biases_and_norm_layers_are_spared
-if parameter.dim() <= 1], "weight_decay": 0.0},
+if parameter.dim() <= 1]},
# a divided optimizer: other ranks miss an update
strategies/parallel/divided_optimizer.py test_parallel_divided_optimizer.py::test_divided_optimizers_compute_the_same
-                    parameter.copy_(chunk.view_as(parameter))
+                    pass
# a divided optimizer: every rank updates all
strategies/parallel/divided_optimizer.py test_parallel_divided_optimizer.py::test_divided_optimizers_compute_the_same
-            if self.owners[parameter] != dist.get_rank():
+            if False:
# a divided optimizer: gradients are lost
strategies/parallel/divided_optimizer.py test_parallel_divided_optimizer.py::test_divided_optimizers_compute_the_same
-            parameter.grad = gradient
+            pass
# a divided optimizer: a checkpoint has one rank's states
strategies/parallel/divided_optimizer.py test_parallel_divided_optimizer.py::test_divided_optimizers_compute_the_same
-            saved["state"] |= states
+            pass
# a divided optimizer: a resumed rank has all states
strategies/parallel/divided_optimizer.py test_parallel_divided_optimizer.py::test_divided_optimizers_compute_the_same
-return {**saved, "state": self._of_this_rank(saved)}
+return {**saved}
# a divided optimizer: one that computes across all weights
base/optimizers.py test_parallel_divided_optimizer.py::test_divided_optimizers_compute_the_same
-type(optimizer).__module__.startswith("torch.optim") and not isinstance(optimizer, LBFGS)
+not isinstance(optimizer, LBFGS)
# a resume goes on with the weights that callbacks have left
runs/checkpoint/content.py test_callbacks.py::test_training_goes_on_with_other_weights_than_fit_has_left
-checkpoint.get(SECTION, {}).get("state_dict", checkpoint["state_dict"])
+checkpoint["state_dict"]
# averaged weights are in no checkpoint
runs/checkpoint/saving.py test_callbacks.py::test_training_goes_on_with_other_weights_than_fit_has_left
-    if digest(weights) != digest(saved):
+    if False:
# a divided optimizer: a closure brings the gradients back
strategies/parallel/divided_optimizer.py test_parallel_divided_optimizer.py::test_divided_optimizers_compute_the_same
-            function(optimizer)
-            return loss
+            return loss
# a module under fsdp waits for gradients of unused weights
strategies/fsdp.py test_parallel_divided_optimizer.py::test_in_float64_it_is_single[teacher]
-    find_unused_parameters = True
+    find_unused_parameters = False
# zero1: each rank has all states
strategies/zero1.py test_strategies_zero1.py::test_each_rank_has_its_part_of_the_state
-            DividedOptimizer(optimizer, gathers=not plan.checkpoint.sharded)
+            pass
# zero1: whether ranks have the same weights is not compared
runs/compare/recorded_run.py test_strategies_zero1.py::test_weights_that_are_not_sent_are_noticed
-line.get("sharded", False) in (True, kind)
+bool(line.get("sharded"))
# buckets are not kept
strategies/parallel/fixed_bucket_ddp.py test_parallel_fixed_bucket_ddp.py::test_buckets_stay_the_same
-        fix_buckets(self)
+        pass
# virtual ranks draw the same masks
strategies/parallel/virtual_ranks.py test_strategies_virtual.py::test_the_noise_and_the_buffers_of_each_rank
-                seed_rank(seed, rank)
+                seed_rank(seed, 0)
# virtual ranks share their statistics
strategies/parallel/virtual_ranks.py test_strategies_virtual.py::test_the_noise_and_the_buffers_of_each_rank
-        self._set(self.buffers.get(rank, {}))
+        pass
# ranks draw the same masks
base/random_state.py test_seeding.py::test_ranks_share_weights_and_nothing_else
-seed_all(seed + 1 + rank)
+seed_all(seed + 1)
# a rank's dropout depends on its samples
base/random_state.py test_data_samples.py::test_neither_ranks_nor_workers_nor_a_resume_change_a_sample[0]
-    torch.set_rng_state(state["torch"])
+    pass
# every epoch in the same order
engine/loaders/map_loader.py test_both.py::test_the_engines_agree
-manual_seed(seed + epoch)
+manual_seed(seed)
# ranks take blocks of a batch
engine/loaders/__init__.py test_data_samples.py::test_neither_ranks_nor_workers_nor_a_resume_change_a_sample[0]
-rows = slice(rank, None, world_size)
+rows = slice(samples * rank // world_size, samples * (rank + 1) // world_size)
# warm-up from 0
models/schedulers.py test_optimizers.py::test_warm_up_and_decay_by_hand
-return (step + 1) / warmup
+return step / warmup
# a resume counts twice what a metric has measured before training
engine/state.py test_module_resume.py::test_metrics_of_all_epochs_are_counted_once
-            if metric.update_count:
-                metric.reset()
+            pass
# lightning gives memory back
engine/session.py test_memory.py::test_the_rank_of_either_engine_keeps_them
-        keep_freed_memory()
# max_steps counts batches of a module with several optimizers
engine/progress.py test_trainer_keys_modules.py::test_max_steps_counts_what_optimizers_step
-is_finished(self.position.epochs, trainer.global_step)
+is_finished(self.position.epochs, self.position.steps)
# every schedule steps by steps
models/optimizers.py test_models_optimizers.py::test_other_schedules_go_by_epochs_unless_told
-"step" if "total_steps" in names else "epoch"
+"step"
# ranks may step by gradients that are not averaged
engine/step.py test_user_steps.py::test_steps_that_are_refused[backward]
-averaged = self.backward_passes > 0 or
+averaged = True or
# a rank's loss is not weighed by its samples
engine/step.py test_user_module.py::test_unequal_shares_are_weighted_and_step_values_are_reduced
-        return averaged_over * batches * samples / (
+        return averaged_over / self.plan.world_size
+        return averaged_over * batches * samples / (
# a logged value is not weighed by its samples
engine/logged_values.py test_user_module.py::test_an_ordinary_trainer_computes_the_same
-self.add(value * weight if self.reduction == "mean" else value, weight)
+self.add(value, 1.0)
# a rank without samples trains on somebody else's
engine/loaders/__init__.py test_net_session.py::test_loaders_in_every_world
-is_dummy=True)
+is_dummy=True, count=1)
# gradients of thawed layers stay with their rank
engine/step.py test_user_module.py::test_layers_thawed_later
-            average_late(parameters, self.averaged)
+            pass
# a sample of weight 0 counts in the statistics of a batch
strategies/parallel/sync_batchnorm.py test_strategies_modules.py::test_synchronized_batchnorm_of_ragged_batches
-local if is_counted else torch.zeros_like(local)
+local
# the net of a module is not replicated
strategies/dp.py test_strategies_modules.py::test_replicas_take_batchnorm_of_their_chunks
-                replace_forward(self.lightning_module, net, forward(plan, net))
+                pass
# a rank without samples draws
engine/step.py test_user_module.py::test_a_rank_without_samples_draws_nothing
-with uncounted(), preserve_metrics(self.module), preserve_generators([self.data.device]):
+with uncounted(), preserve_metrics(self.module):
# each rank weighs its gradient by its own targets
engine/step.py test_loss_weights.py::test_every_world_is_a_plain_loop
-all_reduce_sums(torch.tensor(self.window + (self.batch or 0.0), dtype=torch.float64), device).item()
+self.window + (self.batch or 0.0)
# a rank without samples weighs those of its dummy batch
engine/step.py test_loss_weights.py::test_every_world_is_a_plain_loop
-0.0 if self.share.is_dummy else weight
+weight
# ignored targets count among the classes
engine/callbacks/__init__.py test_callbacks_monitoring.py::test_counts_of_batches
-[(targets >= 0) & (targets < classes)]
+[targets < classes].clamp(0)
# a curve of rank 0 alone
engine/results.py test_loggers.py::test_several_loggers_get_the_same_points
-all_reduce_sums(sums, self.device).tolist()
+sums.tolist()
# a speed of rank 0 alone
engine/results.py test_loggers.py::test_several_loggers_get_the_same_points
-speed = samples /
+speed = samples / 2 /
# right answers among the wrong
engine/callbacks/samples.py test_callbacks_monitoring.py::test_most_confident_errors_are_collected
-confidence.where((predicted != targets) & (targets >= 0), -1.0)
+confidence
# tested on rank 0's samples alone
engine/callbacks/__init__.py test_callbacks_monitoring.py::test_confusion_of_all_ranks[ddp]
-for each in ranks if each]
+for each in ranks[:1] if each]
# a validation within an epoch leaves no checkpoint
engine/training.py test_trainer_keys.py::test_validation_within_an_epoch
-            self.results.end_validation()
-            self._save(self.stop)
+            self.results.end_validation()
# the loss of a batch is weighed twice by the fast loop
engine/loop.py test_engine_loop.py::test_calls_and_counts_are_the_same
-trainer.lightning_module.backward(loss if batches == 1 else loss / batches)
+trainer.lightning_module.backward(loss)
# the norm is measured before unscaling
engine/training.py test_loss_scaling.py::test_the_scale_goes_on_from_a_checkpoint
-        step = learning_rate([optimizer]), self.session.step.gradient_norms(optimizer)
+        scale = trainer.precision_plugin.scaler.get_scale()
+        norms = [scale * norm for norm in self.session.step.gradient_norms(optimizer)]
+        step = learning_rate([optimizer]), norms
"""
