"""Bugs in what surrounds training: processes, files, records, data, the terminal; see table.py for the form."""

RUNS = """
# the timeline's arrows join a collective with the next rank's call before it
base/timeline.py test_report_run.py::test_the_rank_that_was_slowed_is_marked
-            counts[event["name"]] += 1
+            counts[event["name"]] += 1 + (event["pid"] and counts[event["name"]] == 0)
# the bench compares rounds upside down
../bench/workloads.py test_bench.py::test_ratios_are_of_the_same_round
-value / base for
+base / value for
# resume with another scheduler
runs/checkpoint/reading.py test_checkpoint.py::test_options_of_another_training_are_refused[scheduler=onecycle]
-"scheduler"
+"seed"
# resume with another accumulate_grad_batches
runs/checkpoint/reading.py test_checkpoint.py::test_options_of_another_training_are_refused[accumulate_grad_batches=2]
-"accumulate_grad_batches"
+"seed"
# resume with another loss_reduction
runs/checkpoint/reading.py test_checkpoint.py::test_options_of_another_training_are_refused[loss_reduction=sum]
-"sync_batchnorm", "loss_reduction"),
+"sync_batchnorm"),
# ranks resume without their own buffers
engine/state.py test_resume.py::test_killed_with_other_options[batchnorm]
-                buffer.copy_(state["buffers"][name])
+                pass
# a resume with the options of another run
command/job.py test_resume.py::test_resume_and_last_on_the_command_line
-    earlier = typed_words(run_dir if resumes and sets_folder(words) else None, config.name, config.ckpt_path)
+    earlier: list[str] = []
# a damaged checkpoint is chosen
runs/checkpoint/files.py test_checkpoint_choice.py::test_newest_undamaged_checkpoint_is_chosen
-            read_checkpoint(path, mmap=True)
+            pass
# gradients of manual optimization are forgotten
engine/state.py test_parallel_divided_optimizer.py::test_killed_in_a_step_it_ends_the_same[job1]
-accumulating = plan.model.manual or position.batch % plan.accumulate_grad_batches > 0
+accumulating = position.batch % plan.accumulate_grad_batches > 0
# float64 owes less
runs/compare/tolerance.py test_tolerance.py::test_bounds_are_those_of_the_docs
-FLOAT64 = Tolerance(1e-10,
+FLOAT64 = Tolerance(1e-9,
# float32 owes less
runs/compare/tolerance.py test_tolerance.py::test_bounds_are_those_of_the_docs
-FLOAT32 = Tolerance(1e-4, 3,
+FLOAT32 = Tolerance(1e-3, 3,
# bf16 owes less
runs/compare/tolerance.py test_tolerance.py::test_bounds_are_those_of_the_docs
-MIXED = Tolerance(0.1, 3,
+MIXED = Tolerance(1.0, 3,
# a split is another in each run
datamodules/tensors.py test_datamodules_datasets.py::test_a_split_has_every_sample_once_and_is_always_the_same
-torch.randperm(total, generator=torch.Generator().manual_seed(seed))
+torch.randperm(total)
# columns of a table are standardised by all rows
datamodules/csv_file.py test_datamodules_csv_file.py::test_columns_are_standardised_by_the_training_rows
-train = inputs[rows["train"]]
+train = inputs
# pixels are not scaled
datamodules/tensors.py test_datamodules.py::test_pixels_are_scaled_in_a_batch_alone_and_classes_stay
-.div_(255).sub_(self.mean)
+.sub_(self.mean)
# a stream is shuffled
datamodules/tensors.py test_datamodules_datasets.py::test_a_stream_keeps_its_order_and_batch_size
-stage == "train" and not is_stream
+stage == "train"
# a configuration's containers stay in a checkpoint
base/safe_loading.py test_safe_loading.py::test_containers_that_hydra_passes_are_saved_as_plain_ones
-    if OmegaConf.is_config(value):
+    if False:
# a sample is drawn alike in each epoch
engine/loaders/seeded.py test_data_samples.py::test_a_sample_is_drawn_under_its_seed
-seed_by(self.seed, epoch, sample)
+seed_by(self.seed, 0, sample)
# a draw by Python has no seed
base/random_state.py test_data_samples.py::test_a_sample_is_drawn_under_its_seed
-    np.random.seed(seed & 0xFFFFFFFF)
-    random.seed(seed)
+    np.random.seed(seed & 0xFFFFFFFF)
# a signal to the group kills the workers of a rank
engine/loaders/seeded.py test_signals.py::test_timeout_stops_training_with_a_checkpoint
-os.setpgid(0, 0)
+pass
# a run whose checkpoints are all damaged begins anew
runs/checkpoint/files.py test_checkpoint_choice.py::test_a_run_whose_checkpoints_are_all_damaged_is_not_overwritten
-        _raise_without_checkpoint(plan, skipped, in_folder)
+        pass
# a damaged last.ckpt replaces the undamaged previous.ckpt
runs/checkpoint/files.py test_checkpoint_files.py::test_undamaged_checkpoint_replaces_the_damaged
-        hardlink(previous, LAST)
+        pass
# each output is compared with each target
datamodules/datasets.py test_data_samples.py::test_one_number_a_sample_is_a_column
-return targets[:, None] if targets.dim() == 1 else targets
+return targets
# a rank that ends at once breaks the group of one that still connects
launch/worker.py test_launch_worker.py::test_no_rank_goes_on_before_all_are_connected
-    dist.barrier()  # this rank is connected
+    # this rank is connected
# the private folder of a killed command stays
launch/forkserver_preload.py test_private_dir.py::test_a_killed_command_leaves_no_file
-            shutil.rmtree(os.environ[OF_COMMAND], ignore_errors=True)
+            pass
# a signal is lost while torch's C code imports numpy
launch/signals.py test_stop_handler.py::test_a_signal_while_torch_is_imported_is_not_lost
-    os._exit(128 + number)
+    raise SystemExit(128 + number)
# a rank whose start a signal interrupts outlives the job
launch/ranks.py test_ranks.py::test_an_interrupted_start_leaves_no_rank
-            kill_forkserver()  # it
+            pass  # it
# the rank that waited is blamed, in place of the one that did not answer
launch/ranks.py test_user_errors.py::test_how_a_rank_of_a_module_ends[loops-63]
-if failure.kind == TIMEOUT and silent:
+if False:
# StopIteration in a data set ends the epoch
engine/loaders/seeded.py test_user_errors.py::test_a_data_set_whose_iterator_ends_in_a_worker
-            except StopIteration as error:
+            except ZeroDivisionError as error:
# random numbers stay
launch/worker.py test_in_process.py::test_the_process_is_left_as_it_was
-, preserve_generators(devices):
+:
# threads stay
launch/worker.py test_in_process.py::test_the_process_is_left_as_it_was
-        torch.set_num_threads(threads)
# what an earlier group left at the file of a rendezvous counts
launch/rendezvous.py test_rendezvous.py::test_a_group_is_of_one_start
-secrets.token_hex()
+"0"
# the list of one run's hyper-parameters for all
runs/loggers/__init__.py test_monitor.py::test_run_in_tensorboard
-            self._add_session(1)
+            self.experiment.add_hparams(self.options, {})
# pictures at every validation, whatever they take
engine/callbacks/pictures.py test_callbacks_monitoring.py::test_pictures_of_a_module
-if self.validations.bit_count() == 1:
+if True:
# a summary draws
engine/__init__.py test_model_summary.py::test_summary_of_a_module
-[*summaries, *first, *callbacks]
+[*first, *summaries, *callbacks]
# the record adds a batch to the step after it
runs/record/__init__.py test_recorder.py::test_each_optimizer_step_has_a_line
-        self.batches.append((stats, ids, len(self.steps)))
+        self.batches.append((stats, ids, len(self.steps) + (self.batches != [])))
# the record is not synced
runs/record/__init__.py test_record_file.py::test_record_is_synced_before_the_checkpoint_is_renamed
-            os.fsync(record.fileno())
+            pass
# an optimizer without its state
runs/record/fingerprint.py test_fingerprint.py::test_changes_are_seen_in_their_kind[<lambda>-optimizer0]
-for name, state in sorted(states,
+for name, state in sorted(states[:0],
# buffers that are not looked at
runs/record/fingerprint.py test_fingerprint.py::test_changes_are_seen_in_their_kind[<lambda>-buffers]
-sorted(buffers_of(net).items())
+[]
# the dropout of a recurrent net is overlooked
base/random_state.py test_run_metadata.py::test_by_the_types_of_modules
-isinstance(module, nn.RNNBase | nn.MultiheadAttention)
+isinstance(module, nn.MultiheadAttention)
# a full device raises
base/streams.py test_streams.py::test_output_to_a_full_device_is_dropped
-            redirect_to_null(self.fileno())
+            raise
             return len
# the worst job of a sweep is called the best
runs/sweep/jobs.py test_sweep_best.py::test_the_first_of_the_best_by_the_monitor_of_the_checkpoint
-(min if self.mode == "min" else max)(
+min(
# a speed-up of rates
runs/sweep/jobs.py test_sweep_table.py::test_jobs_are_compared_with_the_first_of_their_plan
-    if reference is not None and has_speed_up:
+    if reference is not None:
# inputs are not prepared as the data module does it
predict.py test_predict.py::test_pictures_and_arrays_of_the_test_split_are_classified_as_in_the_run
-batch = getattr(owner, name)(batch, 0)
+pass
# test=best loads the last net
command/inference.py test_inference.py::test_the_best_net_or_the_one_of_a_checkpoint
-if plan.test == "best" and
+if plan.test == "worst" and
# grey pictures become colours for a transform
predict.py test_predict.py::test_pictures_go_through_the_transform_of_the_dataset
-if shape[:1] == (1,) else
+if shape[:1] == (0,) else
# optimizer states of ranks are not compared
runs/compare/recorded_run.py test_compare.py::test_ranks_that_diverge_alike_in_both_runs_are_named[optimizer]
-    for (epoch, step), line in run.lines["fingerprint"].items():
-        for kind in (kind for kind in line if kind.startswith((*FINGERPRINTED, REPLICATED))):
+    for (epoch, step), line in run.lines["fingerprint"].items():
+        for kind in ("weights", "buffers"):
# a sweep's reference has another batch size
runs/sweep/jobs.py test_sweep_table.py::test_jobs_are_compared_with_the_first_of_their_plan
-PLACE = (*WORLD,
+PLACE = (*WORLD, "batch_size",
# job 10 comes before job 2
runs/sweep/jobs.py test_sweep_best.py::test_jobs_are_in_the_order_of_their_numbers
-key=lambda path: (len(path.name), path.name)
+key=lambda path: path.name
# copies of a weight on other meshes count in the norm
strategies/parallel/tensor_layout.py test_parallel_tensor_layout.py::test_parts_count_once
-    return bool((mesh.mesh == 0).any()) and not any(
+    return not any(
# ranks drop the same places of different parts
strategies/parallel/divided_dropout.py test_parallel_divided_dropout.py::test_attention_of_parts_is_that_of_the_whole
-.chunk(mesh.size(), dimension)[mesh.get_local_rank()]
+.chunk(mesh.size(), dimension)[0]
# copies of a part are taken for other parts
strategies/parallel/tensor_layout.py test_parallel_tensor_layout.py::test_parts_count_once
-if size > 1 and not kind.is_replicate()]
+if size > 1]
# the kernels of another layout are restored
strategies/parallel/tensor_layout.py test_parallel_tensor_layout.py::test_parts_count_once
-        saved |= {
+        _ = {
"""
