"""A run on one rank: train, validate, test, and return the results.

The launcher has started `world_size` processes, each of which has called `torch.distributed.init_process_group` and
then `run`. Every rank computes the same lines; it differs by its number alone, which selects its samples of each batch,
and collectives bring ranks together: in `step` to average gradients, in `record` to add up what was measured.
"""

import os
import time
from typing import Any

import torch
import torch.distributed as dist

from lockstep.base.timeline import timeline
from lockstep.launch.topology import RankContext
from lockstep.plan.targets.kinds import overrides
from lockstep.raw import Job
from lockstep.raw.data import arguments_for, loaders_of, transfer
from lockstep.raw.manual import manual_step
from lockstep.raw.random_state import preserved_generators, seed_evaluation
from lockstep.raw.step import automatic_step, step_schedules
from lockstep.raw.trainer import STAGES, Trainer


def run(job: Job, context: RankContext) -> dict[str, Any]:
    """Train, validate and test as the configuration says; return the content of metrics.json, on every rank."""
    trainer = Trainer(job, context)  # with the data and the module, whose weights are alike on every rank
    if (deterministic := trainer.config.trainer.deterministic) is not None:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS adds in any order
        torch.use_deterministic_algorithms(bool(deterministic), warn_only=deterministic == "warn")
    with timeline(job.world.folder, context.rank, trainer.config.profiler):
        train_and_test(trainer)
    return trainer.record.results()


def train_and_test(trainer: Trainer) -> None:
    """Train for all epochs, each with its validations, and test."""
    trainer.prepare()
    module, record = trainer.module, trainer.record
    module.on_fit_start()
    loaders_of(trainer, "val")  # `on_train_start` may read them
    trainer.training = True
    module.on_train_start()
    while record.epoch < trainer.config.max_epochs and not trainer.is_over() and not trainer.should_stop:
        train_epoch(trainer)
    trainer.current_epoch = record.epoch + bool(record.batches)
    module.on_train_end()
    trainer.training = False
    module.on_fit_end()
    trainer.call("teardown", "fit")
    record.end()
    if trainer.config.test and trainer.runs("test"):
        trainer.call("setup", "test")
        evaluate(trainer, "test")
        trainer.call("teardown", "test")


def train_epoch(trainer: Trainer) -> None:
    """Train on each batch once, validate in between or at the end, and record the epoch."""
    module, record, validated = trainer.module, trainer.record, False
    trainer.current_epoch, accumulate = record.epoch, trainer.config.accumulate_grad_batches
    train_step = automatic_step if module.automatic_optimization else manual_step
    trainer.log.begin_stage("train")
    module.on_train_epoch_start()
    began = time.perf_counter()
    for index, share in enumerate(loaders_of(trainer, "train")[0].shares(record.epoch, accumulate)):
        trainer.is_last_batch = share.is_last
        is_step = share.is_last or (index + 1) % accumulate == 0  # the last batch of an optimizer step
        batch = transfer(trainer, share.batch)
        trainer.begin_batch(share)
        if module.on_train_batch_start(batch, index) == -1:  # the module skips the rest of the epoch
            trainer.is_last_batch = True
            trainer.log.between_batches("train")
            step_schedules(trainer, index, step_ends=True, epoch_ends=True)
            break
        for layer, name in trainer.shared_buffers if index % accumulate == 0 else ():
            dist.broadcast(getattr(layer, name), src=0)
        outputs = train_step(trainer, share, batch, index, is_step)
        step_schedules(trainer, index, is_step, share.is_last)
        trainer.log.show_batch()
        module.on_train_batch_end(outputs, batch, index)
        record.end_batch(share, is_step or not module.automatic_optimization)
        trainer.seconds += time.perf_counter() - began
        if trainer.is_validation_due(index + 1, share.is_last):
            if is_step:
                module.on_validation_model_zero_grad()
            evaluate(trainer, "val")
            validated = True
            if not share.is_last and not trainer.should_stop:
                record.end_validation(after_step=record.steps, after_batch=record.batches)
        if share.is_last and record.epoch == 0 and index + 1 < trainer.num_training_batches < float("inf"):
            trainer.print(f"data: the length of its training loader is more than {index + 1} batches: no validation")
        if share.is_last or trainer.is_over() or trainer.should_stop:
            break
        began = time.perf_counter()  # reading a batch counts, a validation does not
    trainer.log.reduce("train", ends=False)
    module.on_train_epoch_end()
    record.end_stage("train")
    epoch_is_complete = trainer.is_last_batch or trainer.should_stop or not trainer.is_over()
    if epoch_is_complete:
        step_schedules(trainer, 0, False, trainer.is_last_batch, plateau=True)
        record.end_epoch(validated)


@torch.inference_mode()
@preserved_generators()
def evaluate(trainer: Trainer, stage: str) -> None:
    """Run this rank's batches of each loader through the module's step; every sample counts once."""
    module, log, loaders, name = trainer.module, trainer.log, loaders_of(trainer, stage), STAGES[stage]
    modes, user_step = {each: each.training for each in module.modules()}, getattr(module, f"{name}_step")

    def call(hook: str, *arguments: Any) -> None:
        getattr(module, f"on_{name}_{hook}")(*arguments)

    trainer.enter(stage)
    call("model_eval")
    log.begin_stage(stage)
    seed_evaluation(trainer, stage)
    call("start")
    call("epoch_start")
    for buffer in module.buffers() if trainer.world_size > 1 else ():
        dist.broadcast(buffer, src=0)  # ranks may have statistics of their own; those of rank 0 are saved
    for number, loader in enumerate(loaders):
        which = (number,) if len(loaders) > 1 else ()
        for index, share in enumerate(loader.shares(0)):
            batch = transfer(trainer, share.batch, number)
            log.begin_batch(stage, len(share.ids), f"/dataloader_idx_{number}" if which else "")
            seed_evaluation(trainer, stage, index, number)
            call("batch_start", batch, index, *which)
            with trainer.forward_context(share):
                outputs = user_step(*arguments_for(user_step, batch, index, *which))
            call("batch_end", outputs, batch, index, *which)
            log.between_batches(stage)
    seed_evaluation(trainer, stage)
    log.reduce(stage, ends=False)
    for callback in trainer.callbacks if stage == "test" else ():
        callback.on_test_epoch_end(trainer, module)
    call("epoch_end")
    trainer.record.end_stage(stage)
    call("end")
    trainer.enter("train" if stage == "val" else "")
    if overrides(module, f"on_{name}_model_train"):
        call("model_train")
    else:
        for each, mode in modes.items():
            each.training = mode
