"""Evaluation: this rank's share of each loader goes through the module's step, which logs values over all ranks."""

from itertools import islice
from typing import TYPE_CHECKING

import torch

from lockstep.parallel.messages import broadcast_buffers
from lockstep.random_state import preserve_generators

if TYPE_CHECKING:
    from lockstep.raw.training import Training

NAMES = {"val": "validation", "test": "test"}  # the stages in the names of hooks and steps


@torch.inference_mode()
def evaluate(run: "Training", stage: str, max_batches: int | None = None) -> None:
    """Run all batches of all loaders of a stage, or the first `max_batches` of each, and make results of the log."""
    session, trainer, hooks, module, name = run.session, run.trainer, run.hooks, run.module, NAMES[stage]
    loaders = session.data.loaders(stage)
    if not loaders:  # the module returns an empty list
        return
    trainer.begin_evaluation(stage, loaders)
    modes = {child: child.training for child in module.modules()}

    def restore_modes() -> None:
        for child, mode in modes.items():
            child.training = mode

    hooks.method(f"on_{name}_model_eval", module.eval)()
    session.begin_evaluation(stage)
    hooks.call(f"on_{name}_start")
    hooks.call(f"on_{name}_epoch_start")
    broadcast_buffers(module)  # after hooks that may have replaced the weights by their average
    step = getattr(module, f"{name}_step")
    for loader_idx, loader in enumerate(loaders):
        dataloader_idx = [loader_idx] if len(loaders) > 1 else []
        for batch_idx, batch in enumerate(islice(loader, max_batches)):
            batch = session.data.transfer(batch, loader_idx)
            session.begin_evaluation_batch(stage, batch_idx, loader_idx)
            hooks.call(f"on_{name}_batch_start", batch, batch_idx, *dataloader_idx)
            with run.precision.forward_context():
                outputs = step(*hooks.step_arguments(f"{name}_step", batch, batch_idx, *dataloader_idx))
            session.results.update_step_metrics(trainer)
            hooks.call(f"on_{name}_batch_end", outputs, batch, batch_idx, *dataloader_idx)
            session.log.enter(stage)
    session.before_epoch_end(trainer, stage)
    hooks.call(f"on_{name}_epoch_end")
    session.results.end_stage(trainer, stage)
    hooks.call(f"on_{name}_end")
    session.end_evaluation(stage)
    hooks.method(f"on_{name}_model_train", restore_modes)()
    trainer.end_evaluation(stage)


def sanity_check(run: "Training") -> None:
    """Validate on some batches before training, so that errors show early. Everything that it changes is restored."""
    session, trainer, hooks = run.session, run.trainer, run.hooks
    with preserve_generators(), session.sanity_check():
        trainer.sanity_checking = True
        hooks.call("on_sanity_check_start")
        batches = session.plan.trainer.num_sanity_val_steps
        evaluate(run, "val", None if batches == -1 else batches)
        hooks.call("on_sanity_check_end")
        trainer.reset_metrics()
        trainer.sanity_checking = False
