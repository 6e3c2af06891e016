"""The bugs: where, the line as it is (it occurs once in its file), the line with the bug, and the test that fails."""

from typing import NamedTuple


class Mutation(NamedTuple):
    """`file` is below src/lockstep."""

    name: str
    file: str
    old: str
    new: str
    test: str


OPTIMIZERS, RESUME = (
    "tests/test_optimizers.py",
    "tests/test_checkpoint.py::test_options_of_another_training_are_refused",
)
CURVES, COMPARE = (
    "tests/test_loggers.py::test_points_are_of_all_ranks",
    "tests/test_compare.py",
)
BOUNDS = f"{COMPARE}::test_bounds_are_those_of_the_docs"
BENCH, STREAMS = (
    "tests/test_bench.py::test_a_goal_of_at_most_0_6_is_judged_if_the_rounds_are_conclusive",
    "tests/test_streams.py",
)
HERE = "tests/test_in_process.py::test_the_process_is_left_as_it_was[raw]"
BOMB = "tests/test_data_mnist.py::test_six_gigabytes_in_place_of_a_file_are_not_read"
FINGER = "tests/test_fingerprint.py::test_changes_are_seen_in_their_kind"
ORDER, RAGGED = "tests/test_sampler.py", "tests/test_batch_math.py"
SYNCED = "tests/test_record_file.py::test_record_is_synced_before_the_checkpoint_is_renamed[raw]"
FORMAT, SIGNED = "tests/test_memory_format.py", "tests/test_intruder.py::test_unsigned_values_are_missing"
SHARDS, PIECES = "tests/test_parallel_sharded_module.py", "parallel/sharded_module.py"
WHOLE = "steps/full_weights.py"

MUTATIONS = [
    Mutation(
        "a rank that ends at once breaks the group of one that still connects",
        "launch/worker.py",
        "    dist.barrier()  # this rank is connected",
        "    # this rank is connected",
        "tests/test_launch_worker.py::test_no_rank_goes_on_before_all_are_connected[init_process_group]",
    ),
    Mutation(
        "private folders of killed commands stay",
        "launch/private_dir.py",
        "            _remove_if_unlocked(folder)\n",
        "            pass\n",
        "tests/test_private_dir.py::test_only_abandoned_folders_are_removed",
    ),
    Mutation(
        "a signal is lost while torch's C code imports numpy",
        "launch/signals.py",
        "    os._exit(128 + number)",
        "    raise SystemExit(128 + number)",
        "tests/test_stop_handler.py::test_a_signal_while_torch_is_imported_is_not_lost",
    ),
    Mutation(
        "a rank whose start a signal interrupts outlives the job",
        "launch/attempt.py",
        "            kill_forkserver()  # it",
        "            pass  # it",
        "tests/test_attempt.py::test_an_interrupted_start_leaves_no_rank",
    ),
    Mutation(
        "each rank weighs its gradient by its own targets",
        "sums/epoch_metrics.py",
        "all_reduce_sums(self.sums.sums, self.device).tolist()\n        self.sums =",
        "self.sums.sums.tolist()\n        self.sums =",
        "tests/test_ignored_targets.py::test_engines_and_ranks_are_one[holes-world0]",
    ),
    Mutation(
        "ignored targets count among the classes",
        "sums/running.py",
        "pairs.flatten() if ignored is None else pairs[targets != ignored]",
        "pairs.flatten().clamp(min=0)",
        "tests/test_ignored_targets.py::test_it_is_the_mean_over_those_that_count[holes]",
    ),
    Mutation(
        "virtual ranks may step by gradients that are not averaged",
        "steps/module_step.py",
        "self.ranks > 1 and self.plan.ckpt_path is None",
        "self.plan.world_size > 1 and self.plan.ckpt_path is None",
        "tests/test_user_steps.py::test_gradients_that_nobody_averages_are_refused[virtual]",
    ),
    Mutation(
        "ranks in shards wait for each other in other places",
        "parallel/sharded_module.py",
        "        if places.sum() != 0:\n",
        "        if places.sum() > 9:\n",
        "tests/test_user_steps.py::test_a_rank_that_leaves_out_a_backward_pass_is_not_waited_for",
    ),
    Mutation(
        "an epoch that is resumed within has steps of the first epoch's batches",
        "lit/callback.py",
        "        self.trainer.accumulate_grad_batches = self.progress.batches_per_step",
        "        # self.trainer.accumulate_grad_batches = self.progress.batches_per_step",
        "tests/test_callbacks.py::test_resumed_in_an_epoch_of_other_steps[lightning]",
    ),
    Mutation(
        "the record joins batches by the first epoch's number",
        "record/step_buffer.py",
        "self.plan.steps.batches_per_step(self.epoch)",
        "self.plan.steps.batches_per_step(0)",
        "tests/test_callbacks.py::test_batches_of_a_step_change_by_epoch[module]",
    ),
    Mutation(
        "a resume counts twice what a metric has measured before training",
        "session/module_state.py",
        "                if metric.update_count:\n                    metric.reset()",
        "                pass",
        "tests/test_module_resume.py::test_metrics_of_all_epochs_are_counted_once",
    ),
    Mutation(
        "metrics of a sanity check stay",
        "session/session.py",
        "        with preserve_metrics(self.module):\n            yield",
        "        yield",
        "tests/test_sanity_check.py::test_nothing_of_it_is_kept[world0]",
    ),
    Mutation(
        "a sanity check draws",
        "raw/evaluation.py",
        "    with preserve_generators(), session.sanity_check():",
        "    with session.sanity_check():",
        "tests/test_sanity_check.py::test_nothing_of_it_is_kept[world0]",
    ),
    Mutation(
        "biases in no group",
        "optimizers.py",
        'return [{"params": decayed}, {"params": spared, "weight_decay": 0.0}]',
        'return [{"params": decayed}]',
        f"{OPTIMIZERS}::test_every_parameter_is_trained[sgd]",
    ),
    Mutation(
        "biases decay",
        "optimizers.py",
        '{"params": spared, "weight_decay": 0.0}',
        '{"params": spared}',
        f"{OPTIMIZERS}::test_biases_and_norm_layers_are_spared[adamw]",
    ),
    Mutation(
        "warm-up from 0",
        "schedulers.py",
        "return (step + 1) / warmup",
        "return step / warmup",
        f"{OPTIMIZERS}::test_warm_up_and_decay_by_hand",
    ),
    *(
        Mutation(f"resume with another {key}", "checkpoint/identity.py", f'"{key}"', '"seed"', f"{RESUME}[{override}]")
        for key, override in (
            ("scheduler", "scheduler=onecycle"),
            ("accumulate_grad_batches", "accumulate_grad_batches=2"),
            ("drop_last", "drop_last=true"),
            ("precision", "precision=bf16-mixed"),
            ("gradient_clip_val", "gradient_clip_val=1.0"),
            ("sync_batchnorm", "sync_batchnorm=true"),
        )
    ),
    Mutation(
        "resume with another dropout",
        "checkpoint/identity.py",
        '"sync_batchnorm", "dropout_rng"),',
        '"sync_batchnorm"),',
        f"{RESUME}[dropout_rng=global]",
    ),
    Mutation(
        "clip before the sum",
        "raw/automatic_optimization.py",
        '        run.wrapped.synchronise()\n        mark("communication")\n',
        '        clip_gradients(run, optimizer)\n        run.wrapped.synchronise()\n        mark("communication")\n',
        "tests/test_raw_reduce.py::test_every_method_trains_to_the_same_weights[2-32-true-0.0]",
    ),
    Mutation(
        "a sum that is no mean",
        "parallel/reduce.py",
        "    unflatten(flat / dist.get_world_size(), gradients)\n\n\ndef ring",
        "    unflatten(flat, gradients)\n\n\ndef ring",
        "tests/test_raw_reduce.py::test_by_hand[2-three_gradients]",
    ),
    *(
        Mutation(f"{engine}: {name} of rank 0 alone", "sums/epoch_metrics.py", old, new, f"{CURVES}[{engine}]")
        for engine in ("raw", "lightning")
        for name, old, new in (
            (
                "a curve",
                "all_reduce_sums(self.sums.sums, self.device).tolist()\n        sp",
                "self.sums.sums.tolist()\n        sp",
            ),
            ("a speed", "speed = sums[SAMPLES] /", "speed = float(self.sums.sums[SAMPLES]) /"),
        )
    ),
    Mutation(
        "the list of one run's hyper-parameters for all",
        "loggers/tensorboard.py",
        "            self.writer.file_writer.add_summary(hparams_session(self.hparams, self.trial)[0])\n",
        "            self.writer.add_hparams(self.hparams, {})\n",
        "tests/test_monitor.py::test_run_in_tensorboard[raw]",
    ),
    Mutation(
        "a difference that is always zero",
        "monitor/difference.py",
        'line["loss_sum"] / line["samples"] for',
        'line["loss_sum"] * 0 for',
        "tests/test_monitor.py::test_differences_of_two_runs",
    ),
    Mutation(
        "pictures at every validation, whatever they take",
        "monitor/epoch.py",
        "(began < self.next_pictures and not last)",
        "False",
        "tests/test_monitor.py::test_pictures_take_a_share_of_the_time",
    ),
    Mutation(
        "right answers among the wrong",
        "sums/running.py",
        "confidence.where(predicted != targets, -1.0)",
        "confidence",
        "tests/test_monitor.py::test_most_confident_errors_are_collected",
    ),
    Mutation(
        "buckets are not kept",
        "parallel/fixed_bucket_ddp.py",
        "            fix_buckets(self)",
        "            pass",
        "tests/test_parallel_fixed_bucket_ddp.py::test_buckets_stay_the_same",
    ),
    Mutation(
        "buckets are not kept without the private name",
        "parallel/fixed_bucket_ddp.py",
        "finds_unused = finds_unused or not fixed",
        "finds_unused = finds_unused",
        "tests/test_parallel_fixed_bucket_ddp.py::test_buckets_stay_the_same",
    ),
    Mutation(
        "an untested Lightning under the fast loop",
        "lit/trainer.py",
        "if lightning.__version__.startswith(private.TESTED):",
        "if True:",
        "tests/test_private_api.py::test_an_untested_lightning_trains_to_the_same_digest",
    ),
    Mutation(
        "float64 owes less", "compare/tolerance.py", "FLOAT64 = Tolerance(1e-10)", "FLOAT64 = Tolerance(1e-9)", BOUNDS
    ),
    Mutation(
        "float32 owes less",
        "compare/tolerance.py",
        "FLOAT32 = Tolerance(1e-4, 3)",
        "FLOAT32 = Tolerance(1e-3, 3)",
        BOUNDS,
    ),
    Mutation(
        "bf16 owes less", "compare/tolerance.py", "MIXED = Tolerance(0.1, 3)", "MIXED = Tolerance(1.0, 3)", BOUNDS
    ),
    *(
        Mutation(
            f"{engine} gives memory back",
            "session/session.py",
            "        disable_malloc_trim()\n",
            "",
            f"tests/test_memory.py::test_the_rank_of_either_engine_keeps_them[{engine}]",
        )
        for engine in ("lightning", "raw")
    ),
    Mutation("a short timing is judged", "../bench/measurement.py", "LONG_ENOUGH = 0.3", "LONG_ENOUGH = 0.0", BENCH),
    Mutation("rounds that differ are judged", "../bench/measurement.py", "CONFIDENCE = 0.9", "CONFIDENCE = 0.5", BENCH),
    Mutation(
        "a bomb is read",
        "data/download.py",
        ".read(self.length + 1)",
        ".read(100 * self.length)",
        BOMB,
    ),
    Mutation(
        "descriptors stay free",
        "streams.py",
        "    open_closed()\n",
        "",
        f"{STREAMS}::test_a_file_that_is_opened_next_gets_nothing_that_is_printed",
    ),
    Mutation(
        "a full device raises",
        "streams.py",
        "            redirect_to_null(self.fileno())\n        return",
        "            raise\n        return",
        f"{STREAMS}::test_output_to_a_full_device_is_dropped",
    ),
    Mutation(
        "random numbers stay", "launch/in_process.py", "        restore_random_state(random, devices)\n", "", HERE
    ),
    Mutation("threads stay", "launch/in_process.py", "        torch.set_num_threads(threads)\n", "", HERE),
    Mutation(
        "the record is not synced",
        "record/file.py",
        "            os.fsync(record.fileno())\n",
        "            pass\n",
        SYNCED,
    ),
    Mutation(
        "an optimizer without its state",
        "record/fingerprint.py",
        "for name, state in sorted(states,",
        "for name, state in sorted(states[:0],",
        f"{FINGER}[<lambda>-optimizer0]",
    ),
    Mutation(
        "buffers that are not looked at",
        "record/fingerprint.py",
        "sorted(buffers_of(net).items())",
        "[]",
        f"{FINGER}[<lambda>-buffers0]",
    ),
    Mutation(
        "an untested convolution has its channels last",
        "memory/format.py",
        "good = _all_tested(net) if on_cpu else",
        "good = True if on_cpu else",
        f"{FORMAT}::test_untested_nets_stay_contiguous_on_a_cpu",
    ),
    Mutation(
        "an intruder is believed",
        "launch/signed_store.py",
        "return plain if authentic else None",
        "return plain",
        SIGNED,
    ),
    Mutation(
        "samples are not counted",
        "data/__init__.py",
        "    _require_sizes(choice, tensors)\n",
        "",
        "tests/test_sample_counts.py::test_a_run_is_rejected[raw]",
    ),
    Mutation(
        "ranks resume without their own buffers",
        "checkpoint/saving.py",
        "                buffer.copy_(state.buffers[name])\n",
        "                pass\n",
        "tests/test_resume.py::test_killed_with_other_options[batchnorm-raw]",
    ),
    Mutation(
        "every epoch in the same order",
        "sampler.py",
        "manual_seed(seed + epoch)",
        "manual_seed(seed)",
        f"{ORDER}::test_the_order_is_that_of_torchs_distributed_sampler",
    ),
    Mutation(
        "ranks take blocks of a batch",
        "sampler.py",
        "(batch[rank::world_size] for batch in batches)",
        "(batch.tensor_split(world_size)[rank] for batch in batches)",
        f"{ORDER}::test_by_hand",
    ),
    Mutation(
        "a dropped batch is kept",
        "batch_math.py",
        "return samples // batch_size if drop_last else -(-samples // batch_size)",
        "return -(-samples // batch_size)",
        f"{RAGGED}::test_ten_samples_in_batches_of_four_are_two_full_ones_and_a_ragged_one",
    ),
    Mutation(
        "ranks draw the same masks",
        "random_state.py",
        "seed_all(seed + 1 + rank)",
        "seed_all(seed + 1)",
        "tests/test_seeding.py::test_ranks_share_weights_and_order_and_nothing_else",
    ),
    Mutation(
        "tested on rank 0's samples alone",
        "sums/epoch_metrics.py",
        "totals = all_reduce_sums(totals, self.device)",
        "pass",
        "tests/test_macro_f1.py::test_counts_are_of_every_sample_once[ddp-3]",
    ),
    Mutation(
        "the smallest accuracy is the best",
        "objectives/classification.py",
        'Mean("acc", "max", correct)',
        'Mean("acc", "min", correct)',
        "tests/test_plan.py::test_the_default_monitor",
    ),
    Mutation(
        "the dropout of a recurrent net is overlooked",
        "record/run_metadata.py",
        "isinstance(module, nn.RNNBase | nn.MultiheadAttention)",
        "isinstance(module, nn.MultiheadAttention)",
        "tests/test_run_metadata.py::test_by_the_types_of_modules",
    ),
    Mutation(
        "a damaged checkpoint is chosen",
        "checkpoint/choice.py",
        "        if is_readable(path):",
        "        if path:",
        "tests/test_checkpoint_choice.py::test_newest_undamaged_checkpoint_is_chosen",
    ),
    Mutation(
        "sums of other metrics are gone on from",
        "checkpoint/reading.py",
        "require(saved == measured,",
        "require(True,",
        "tests/test_checkpoint.py::test_sums_of_other_metrics_are_refused",
    ),
    Mutation(
        "a class that does not occur counts",
        "objectives/classification.py",
        "(2 * hits / both)[both > 0].mean()",
        "(2 * hits / both).nan_to_num().mean()",
        "tests/test_objectives.py::test_confusion_and_macro_f1_by_hand",
    ),
    Mutation(
        "a plateau's schedule steps every other epoch",
        "steps/task_module.py",
        'config |= {"interval": "epoch", "monitor"',
        'config |= {"interval": "epoch", "frequency": 2, "monitor"',
        "tests/test_schedulers.py::test_a_plateau_of_the_monitored_metric[usual]",
    ),
    Mutation(
        "a user's mean loss is added as it is",
        "targets/task.py",
        "return tensor if is_sum else tensor * count",
        "return tensor",
        "tests/test_task.py::test_a_plain_loop_over_single_samples_computes_the_same[variational]",
    ),
    Mutation(
        "a ring that loses a share",
        "parallel/reduce.py",
        "        chunks[(rank - step - 1) % world].add_(arrived)",
        "        chunks[(rank - step - 1) % world].copy_(arrived)",
        "tests/test_raw_reduce.py::test_by_hand[2-ring_of_any_size]",
    ),
    Mutation(
        "a sample is drawn alike in each epoch",
        "data/seeded.py",
        'struct.pack("<qqq", seed, epoch, sample)',
        'struct.pack("<qqq", seed, 0, sample)',
        "tests/test_data_samples.py::test_a_sample_is_drawn_under_its_own_seed",
    ),
    Mutation(
        "a rank's dropout depends on its samples",
        "random_state.py",
        "        torch.set_rng_state(states[0])",
        "        pass",
        "tests/test_data_seeded.py::test_the_generators_go_on_as_if_nothing_was_drawn",
    ),
    Mutation(
        "a draw after the first batch is not seen",
        "data/seeded.py",
        "            self.draws = _drawn_since(before)\n",
        "",
        "tests/test_data_seeded.py::test_a_late_draw_has_its_own_seed",
    ),
    Mutation(
        "the first batch is made without seeds",
        "data/seeded.py",
        "self.draws: bool | None = None",
        "self.draws: bool | None = False",
        "tests/test_data_seeded.py::test_samples_are_made_once",
    ),
    Mutation(
        "ranks may step by gradients that are not averaged",
        "steps/module_step.py",
        "averaged = self.backward_passes > 0 or",
        "averaged = True or",
        "tests/test_user_steps.py::test_gradients_that_nobody_averages_are_refused",
    ),
    Mutation(
        "an evaluation is another in each epoch",
        "loaders/rank_loader.py",
        "return self.epoch if self.training else 0",
        "return self.epoch",
        "tests/test_data_samples.py::test_an_evaluation_is_the_same_in_each_epoch",
    ),
    Mutation(
        "each output is compared with each target",
        "data/samples.py",
        "return targets[:, None] if targets.dim() == 1 else targets",
        "return targets",
        "tests/test_data_samples.py::test_one_number_a_sample_is_a_column",
    ),
    Mutation(
        "virtual ranks draw the same masks",
        "parallel/virtual_ranks.py",
        "                seed_rank(seed, rank)",
        "                seed_rank(seed, 0)",
        "tests/test_strategies_virtual.py::test_the_rows_and_the_noise_of_each_rank",
    ),
    Mutation(
        "virtual ranks share their statistics",
        "parallel/virtual_ranks.py",
        "        self._set(self.buffers.get(rank, {}))",
        "        pass",
        "tests/test_strategies_virtual.py::test_the_rows_and_the_noise_of_each_rank",
    ),
    Mutation(
        "a rank's loss is not weighed by its samples",
        "steps/loss_weight.py",
        "    return averaged_over * batches * samples / (",
        "    return averaged_over / plan.world_size\n    return averaged_over * batches * samples / (",
        "tests/test_user_module.py::test_unequal_shares_are_weighted_and_step_values_are_reduced",
    ),
    Mutation(
        "a logged value is not weighed by its samples",
        "steps/logged_value.py",
        'self.add(value * weight if self.reduction == "mean" else value, weight)',
        "self.add(value, 1.0)",
        "tests/test_user_module.py::test_an_ordinary_trainer_computes_the_same",
    ),
    Mutation(
        "virtual ranks of a manual module share a backward pass",
        "steps/manual_ranks.py",
        "[each for turn in self.turns if",
        "[each for turn in self.turns[:1] if",
        "tests/test_user_module.py::test_virtual_ranks_equal_ddp[gan]",
    ),
    Mutation(
        "a plateau schedule misses its step behind an epoch that was resumed within",
        "lit/callback.py",
        "        if trainer.fit_loop.restarting:  #",
        "        if False:  #",
        "tests/test_trainer_keys_modules.py::test_a_limited_run_resumes_as_an_unlimited_one[classifier-12-lightning]",
    ),
    Mutation(
        "rank 0 is asked for the time after every batch",
        "time_limit.py",
        "self.batches + int(batches)",
        "self.batches + 1",
        "tests/test_trainer_keys.py::test_rank_zero_is_asked_now_and_then",
    ),
    Mutation(
        "a validation within an epoch leaves no checkpoint",
        "raw/loop.py",
        "if validates or stops or interrupts or (is_step",
        "if stops or interrupts or (is_step",
        "tests/test_trainer_keys.py::test_validation_within_an_epoch",
    ),
    Mutation(
        "what is overfitted is shuffled",
        "loaders/map_loader.py",
        "if fixed or type(sampler)",
        "if type(sampler)",
        "tests/test_trainer_keys_modules.py::test_overfitting_takes_the_same_batches_in_each_epoch",
    ),
    Mutation(
        "max_steps counts batches of a module with several optimizers",
        "session/progress.py",
        "is_finished(self.position.epochs, trainer.global_step)",
        "is_finished(self.position.epochs, self.position.steps)",
        "tests/test_trainer_keys_modules.py::test_max_steps_counts_what_optimizers_step[gan-12-8]",
    ),
    Mutation(
        "a ragged batch of a plain net weighs like a full one",
        "steps/task_module.py",
        "loss_weight(self.plan, share, 1, self.plan.world_size, batches)",
        "self.plan.world_size / self.plan.batch_size",
        "tests/test_oracle.py::test_cell",
    ),
    Mutation(
        "a rank without samples trains a plain net on somebody else's",
        "steps/task_module.py",
        "        if self.is_dummy_batch:",
        "        if not batch.inputs.numel():",
        "tests/test_net_session.py::test_loaders_in_both_engines_and_worlds[endless]",
    ),
    *(
        Mutation(f"a module in shards: {name}", file, old, new, f"{SHARDS}::test_in_float64_it_is_single[teacher]")
        for name, file, old, new in (
            ("replaced weights are lost", PIECES, "storage.copy_(parameter)", "pass"),
            ("torch loses the memory", PIECES, "parameter.data = storage", "pass"),
            ("a scalar is summed", PIECES, "scalar.grad /= dist.get_world_size()", "pass"),
            ("unfrozen weights stay", PIECES, "shard.requires_grad_(parameter.requires_grad)", "pass"),
            (
                "hooks change no gradient",
                PIECES,
                "to_local().copy_(_distribute(gradient, data).to_local())",
                "to_local()",
            ),
            ("hooks see shards", WHOLE, "replace_method(self.module, name, self._with_full_weights)", "pass"),
            (
                "a scalar's norm counts twice",
                "parallel/tensor_layout.py",
                "squares /= torch.tensor(copies",
                "torch.tensor(copies",
            ),
        )
    ),
    Mutation(
        "a module in shards: it steps on whole weights",
        PIECES,
        "optimizer.register_step_pre_hook(self._before_step)",
        "pass",
        f"{SHARDS}::test_in_float64_it_is_single[critic]",
    ),
    Mutation(
        "a module in shards: ranks add the gradients of two layers",
        PIECES,
        "if is_used and parameter.grad is None:",
        "if False:",
        f"{SHARDS}::test_each_rank_may_choose_its_layers",
    ),
    Mutation(
        "gradients of manual optimization are forgotten",
        "checkpoint/saving.py",
        "accumulating = plan.model.manual or ",
        "accumulating = ",
        f"{SHARDS}::test_killed_in_a_step_it_ends_the_same[raw-job1]",
    ),
    Mutation(
        "a plateau may monitor what nothing logs",
        "raw/automatic_optimization.py",
        "metric is None and config.strict",
        "False",
        "tests/test_user_plateau.py::test_a_step_knows_only_what_is_logged_on_it",
    ),
    Mutation(
        "ranks may read other streams",
        "loaders/stream_loader.py",
        "if self.is_checked or not dist.is_initialized():",
        "if True:",
        "tests/test_iterable_data.py::test_ranks_that_read_different_samples_are_rejected[raw]",
    ),
    Mutation(
        "colours in a pipe",
        "colour.py",
        "not stream.closed and stream.isatty()",
        "not stream.closed",
        "tests/test_colour.py::test_on_a_terminal_alone",
    ),
    Mutation(
        "a manual step's forward is its backward",
        "session/epoch_timing.py",
        "if not module.automatic_optimization:",
        "if False:",
        "tests/test_monitor.py::test_phases_of_a_step",
    ),
    Mutation(
        "the worst job of a sweep is called the best",
        "sweep/jobs.py",
        '(min if self.mode == "min" else max)(',
        "min(",
        "tests/test_sweep_best.py::test_the_first_of_the_best_by_the_monitor_of_the_checkpoint",
    ),
    Mutation(
        "a speed-up of rates",
        "sweep/rows.py",
        "    if reference is not None and has_speed_up:",
        "    if reference is not None:",
        "tests/test_sweep_table.py::test_a_speed_up_needs_worlds_that_differ",
    ),
    Mutation(
        "a summary draws",
        "monitor/net.py",
        "    finally:\n        restore_random_state(state, [device])\n",
        "    finally:\n",
        "tests/test_model_summary.py::test_net_and_generators_are_unchanged",
    ),
    Mutation(
        "gradients of thawed layers stay with their rank",
        "steps/module_step.py",
        "            average_late(parameters, self.averaged)",
        "            pass",
        "tests/test_user_module.py::test_layers_thawed_later",
    ),
    Mutation(
        "a rank without samples draws",
        "steps/module_step.py",
        "        restore_random_state(state, [device])\n",
        "",
        "tests/test_user_module.py::test_a_rank_without_samples_draws_nothing",
    ),
    Mutation(
        "products of a part count in its whole too",
        "monitor/model_summary.py",
        " - sum(totals.get(child, 0) for child in children)",
        "",
        "tests/test_model_summary.py::test_parameters_and_flops_of_layers",
    ),
]
