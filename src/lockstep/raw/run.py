"""A run on one rank: train, validate, test, and return the results.

The launcher has started `world_size` processes, each of which has called `torch.distributed.init_process_group` and
then `run`. Every rank computes the same lines; it differs by its number alone, which selects its samples of each batch,
and collectives bring ranks together: in `step` to average gradients, in `record` to add up what was measured.
"""

import time
from typing import Any

import torch
import torch.distributed as dist

from lockstep.launch.topology import RankContext
from lockstep.plan.targets.kinds import overrides
from lockstep.raw import Job
from lockstep.raw.data import preserved_generators
from lockstep.raw.log import preserved_metrics
from lockstep.raw.module import STAGES, Rank, manual_step
from lockstep.raw.step import arguments_for, automatic_step, step_schedules


def run(job: Job, context: RankContext) -> dict[str, Any]:
    """Train, validate and test as the configuration says; return the content of metrics.json, on every rank."""
    rank = Rank(job, context)  # with the data and the module, whose weights are alike on every rank
    rank.prepare()
    fit(rank)
    rank.call("teardown", "fit")
    rank.record.end()
    if rank.config.test and rank.runs("test"):
        rank.call("setup", "test")
        evaluate(rank, "test")
        rank.call("teardown", "test")
    return rank.record.results()


def fit(rank: Rank) -> None:
    """Train for the epochs of the configuration, or until a limit."""
    module, trainer = rank.module, rank.trainer
    module.on_fit_start()
    if trainer.num_sanity_val_steps and rank.loaders("val"):
        with preserved_metrics(module):
            trainer.sanity_checking = True
            evaluate(rank, "val", trainer.num_sanity_val_steps)
            trainer.sanity_checking = False
    trainer.training, trainer.train_dataloader = True, rank.loaders("train")[0].loader
    module.on_train_start()
    while rank.record.epoch < trainer.max_epochs and not rank.is_over() and not trainer.should_stop:
        train_epoch(rank)
    trainer.current_epoch = rank.record.epochs_begun
    module.on_train_end()
    trainer.training = False
    module.on_fit_end()


def train_epoch(rank: Rank) -> None:
    """Train on each batch once, validate in between or at the end, and record the epoch."""
    module, trainer, record, validated = rank.module, rank.trainer, rank.record, False
    trainer.current_epoch, accumulate = record.epoch, trainer.accumulate_grad_batches
    record.begin_stage("train")
    module.on_train_epoch_start()
    for index, share in enumerate(rank.loaders("train")[0].shares(record.epoch, accumulate)):
        began, trainer.is_last_batch = time.perf_counter(), share.is_last
        is_step = share.is_last or (index + 1) % accumulate == 0  # the last batch of an optimizer step
        batch = rank.transfer(share.batch)
        record.begin_batch(share)
        if module.on_train_batch_start(batch, index) == -1:
            trainer.is_last_batch = True
            record.log.end_batch("train")
            break
        if module.automatic_optimization:
            outputs = automatic_step(rank, share, batch, index, is_step)
        else:
            outputs = manual_step(rank, share, batch, index)
        step_schedules(rank, index, is_step, share.is_last)
        record.show_batch()
        module.on_train_batch_end(outputs, batch, index)
        record.end_batch(share, is_step or not module.automatic_optimization)
        rank.seconds += time.perf_counter() - began
        ends = share.is_last or rank.is_over()
        if rank.is_validation_due(index + 1, share.is_last):
            if is_step:
                module.on_validation_model_zero_grad()
            evaluate(rank, "val")
            validated = True
            if not share.is_last and not trainer.should_stop:
                record.end_validation(after_step=record.steps, after_batch=record.batches)
        step_schedules(rank, index, is_step, epoch_ends=False, plateau=True)
        if trainer.should_stop or ends:
            break
    record.end_stage("train", ends=False)
    module.on_train_epoch_end()
    record.end_stage("train", ends=True)
    if trainer.is_last_batch or trainer.should_stop or not rank.is_over():  # else the last one is not complete
        step_schedules(rank, 0, False, trainer.is_last_batch, plateau=True)
        record.end_epoch(validated)


@torch.inference_mode()
@preserved_generators()
def evaluate(rank: Rank, stage: str, most: int = -1) -> None:
    """Run this rank's batches of each loader through the module's step; every sample counts once."""
    module, record, name, loaders = rank.module, rank.record, STAGES[stage], rank.loaders(stage)
    modes, user_step = {each: each.training for each in module.modules()}, getattr(module, f"{name}_step")
    rank.enter(stage)
    getattr(module, f"on_{name}_model_eval")()
    record.begin_stage(stage)
    rank.seed_evaluation(stage)
    getattr(module, f"on_{name}_start")()
    getattr(module, f"on_{name}_epoch_start")()
    for buffer in module.buffers() if rank.world > 1 else ():
        dist.broadcast(buffer, src=0)  # ranks may have statistics of their own; those of rank 0 are saved
    for number, loader in enumerate(loaders):
        which = (number,) if len(loaders) > 1 else ()
        for index, share in enumerate(loader.shares(0)):
            if index == most:
                break
            batch = rank.transfer(share.batch, number)
            record.log.begin_batch(stage, share.count, f"/dataloader_idx_{number}" if which else "")
            rank.seed_evaluation(stage, index, number)
            getattr(module, f"on_{name}_batch_start")(batch, index, *which)
            with rank.forward_context(share):
                outputs = user_step(*arguments_for(user_step, batch, index, *which))
            record.show_batch()
            getattr(module, f"on_{name}_batch_end")(outputs, batch, index, *which)
            record.log.end_batch(stage)
    rank.seed_evaluation(stage)
    record.end_stage(stage, ends=False)
    for callback in rank.callbacks if stage == "test" else ():
        callback.on_test_epoch_end(rank.trainer, module)
    getattr(module, f"on_{name}_epoch_end")()
    record.end_stage(stage, ends=True)
    getattr(module, f"on_{name}_end")()
    rank.enter("train" if stage == "val" else "")
    if overrides(module, f"on_{name}_model_train"):
        getattr(module, f"on_{name}_model_train")()
        return
    for each, mode in modes.items():
        each.training = mode
