"""A run on one rank: create the data and the module, train, validate, test, and return the results.

The launcher has started `world` processes, each of which has called `torch.distributed.init_process_group` and then
`run`. Every rank computes the same lines; it differs by its number alone, and the collectives bring ranks together.
"""

import inspect
import time
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch import LightningModule

from lockstep.errors import TrainingInterrupted
from lockstep.launch.topology import RankContext
from tests.mirror import Job, step
from tests.mirror.data import generator_states, preserved_generators, seed_all, set_generators
from tests.mirror.module import configured, preserved_metrics
from tests.mirror.rank import STAGES, Rank
from tests.mirror.record import results, save


def run(job: Job, context: RankContext) -> dict[str, Any]:
    """Train, validate and test as the configuration says; return the content of metrics.json, on every rank."""
    this = Rank(job, context)
    config, module, trainer = this.config, this.module, this.trainer
    this.setup("fit")
    if inspect.getmodule(type(module).configure_model) is not inspect.getmodule(LightningModule):
        with preserved_generators(config.seed):
            module.configure_model()
        this.convert()
    module.to(this.device)
    this.loaders("train")  # schedules may ask for the number of steps
    this.optimizers, this.schedules = configured(module.configure_optimizers())
    trainer.optimizers, trainer.lr_scheduler_configs = this.optimizers, this.schedules
    several = this.optimizers if len(this.optimizers) > 1 else this.optimizers[0]
    object.__setattr__(module, "optimizers", lambda *_, **__: several)
    this.wrap()
    seed_all(config.seed + 1 + this.rank)  # dropout and the like: each rank draws for itself
    with context.stop.accepting_stop(0):
        fit(this)
    this.teardown("fit")
    weights = module.state_dict()
    this.record.end(weights)
    save(this, job, weights)
    if config.test and this.loaders("test"):
        this.setup("test")
        evaluate(this, "test")
        this.teardown("test")
    return results(this, job, weights)


def fit(run: Rank) -> None:
    """Train for the epochs of the configuration, or until a limit."""
    module, trainer = run.module, run.trainer
    module.on_fit_start()
    if trainer.num_sanity_val_steps and run.loaders("val"):
        with preserved_generators(), preserved_metrics(module):
            trainer.sanity_checking = True
            evaluate(run, "val", trainer.num_sanity_val_steps)
            trainer.sanity_checking = False
    trainer.training = True
    trainer.train_dataloader = run.loaders("train")[0].loader
    module.on_train_start()
    while run.epoch < trainer.max_epochs and not run.is_over and not trainer.should_stop:
        train_epoch(run)
    trainer.current_epoch = run.epoch
    module.on_train_end()
    trainer.training = False
    module.on_fit_end()


def train_epoch(run: Rank) -> None:
    """Train on each batch once, validate in between or at the end, and record the epoch."""
    module, trainer, log, epoch = run.module, run.trainer, run.log, run.epoch
    trainer.current_epoch, run.batches = epoch, 0
    run.begin("train")
    module.on_train_epoch_start()
    validated = False
    for index, share in enumerate(run.loaders("train")[0].shares(epoch, trainer.accumulate_grad_batches)):
        began, trainer.is_last_batch = time.perf_counter(), share.is_last
        is_boundary = share.is_last or (index + 1) % trainer.accumulate_grad_batches == 0
        batch = run.transfer(share.batch)
        run.updates, run.loss = [], None
        log.begin_batch("train", share.count)
        if module.on_train_batch_start(batch, index) == -1:
            trainer.is_last_batch = True
            break
        if module.automatic_optimization:
            outputs = step.automatic_step(run, share, batch, index, is_boundary)
        else:
            outputs = step.manual_step(run, share, batch, index)
        if is_boundary:
            step.step_schedules(run, "step", index, plateau=False)
        if share.is_last:
            step.step_schedules(run, "epoch", epoch, plateau=False)
        run.show_batch()
        module.on_train_batch_end(outputs, batch, index)
        run.end_batch(share, is_boundary or not module.automatic_optimization)
        run.seconds += time.perf_counter() - began
        run.samples += share.count
        interrupted = not share.is_last and run.is_over
        if run.is_validation_due(index + 1, share.is_last):
            if is_boundary:
                module.on_validation_model_zero_grad()
            evaluate(run, "val")
            validated = True
            if not share.is_last and not trainer.should_stop:
                run.end_validation()
        if is_boundary:
            step.step_schedules(run, "step", index, plateau=True)
        if run.context.stop.should_stop(run.total_batches):
            raise TrainingInterrupted(run.steps)
        if trainer.should_stop or interrupted:
            break
    run.end_stage("train", ends=False)
    module.on_train_epoch_end()
    run.end_stage("train", ends=True)
    if run.is_over and not trainer.is_last_batch:
        run.record.flush(epoch + 1, run.steps)
        run.epoch += 1
        return
    if trainer.is_last_batch:
        step.step_schedules(run, "epoch", epoch, plateau=True)
    run.end_epoch(validated)


@torch.inference_mode()
def evaluate(run: Rank, stage: str, most: int = -1) -> None:
    """Run this rank's batches of each loader through the module's step; every sample counts once."""
    module, trainer, log, name = run.module, run.trainer, run.log, STAGES[stage]
    loaders, modes, states = run.loaders(stage), {each: each.training for each in module.modules()}, generator_states()
    if not loaders:
        return
    trainer.training, trainer.validating, trainer.testing = False, stage == "val", stage == "test"
    getattr(module, f"on_{name}_model_eval")()
    run.begin(stage)
    run.seed_evaluation(stage)
    for hook in ("start", "epoch_start"):
        getattr(module, f"on_{name}_{hook}")()
    for buffer in module.buffers() if run.world > 1 else ():
        dist.broadcast(buffer, src=0)  # ranks may have statistics of their own; those of rank 0 are saved
    user_step = getattr(module, f"{name}_step")
    for number, loader in enumerate(loaders):
        which = (number,) if len(loaders) > 1 else ()
        for index, share in enumerate(loader.shares(0)):
            if index == most:
                break
            batch = run.transfer(share.batch, number)
            log.begin_batch(stage, share.count, f"/dataloader_idx_{number}" if which else "")
            run.seed_evaluation(stage, index, number)
            getattr(module, f"on_{name}_batch_start")(batch, index, *which)
            with run.forward_context(share):
                outputs = user_step(*step.arguments_for(user_step, batch, index, *which))
            run.show_batch()
            getattr(module, f"on_{name}_batch_end")(outputs, batch, index, *which)
            log.end_batch(stage)
    run.seed_evaluation(stage)
    run.end_stage(stage, ends=False)
    getattr(module, f"on_{name}_epoch_end")()
    run.end_stage(stage, ends=True)
    getattr(module, f"on_{name}_end")()
    set_generators(states)
    log.end_batch("train")
    for each, mode in modes.items():
        each.training = mode
    trainer.training, trainer.validating, trainer.testing = stage == "val", False, False
