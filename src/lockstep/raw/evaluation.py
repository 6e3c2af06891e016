"""An evaluation: this rank's share of each loader through the module's step, and what it logs, over all ranks."""

from itertools import islice
from typing import TYPE_CHECKING

import torch

from lockstep.random_state import preserve_generators
from lockstep.raw.hooks import step_arguments

if TYPE_CHECKING:
    from lockstep.raw.training import Training

NAMES = {"val": "validation", "test": "test"}
"""How hooks and steps call a stage."""


@torch.inference_mode()
def evaluate(run: "Training", stage: str, most: int | None = None) -> None:
    """Run all batches of all loaders of a stage, or `most` of each, and make results of what they log."""
    session, trainer, hooks, module, name = run.session, run.trainer, run.hooks, run.module, NAMES[stage]
    loaders = session.data.loaders(stage)
    if not loaders:  # the module returns an empty list
        return
    trainer.enter(stage, loaders)
    modes = {part: part.training for part in module.modules()}
    (hooks.method(f"on_{name}_model_eval") or module.eval)()
    session.begin_evaluation(stage)
    hooks.call(f"on_{name}_start")
    hooks.call(f"on_{name}_epoch_start")
    step = getattr(module, f"{name}_step")
    for index, loader in enumerate(loaders):
        which = [index] if len(loaders) > 1 else []
        for number, batch in enumerate(islice(loader, most)):
            batch = session.data.transfer(batch, index)
            session.begin_evaluation_batch(stage, index)
            hooks.call(f"on_{name}_batch_start", batch, number, *which)
            with run.precision.forward_context():
                outputs = step(*step_arguments(step, batch, number, *which))
            hooks.call(f"on_{name}_batch_end", outputs, batch, number, *which)
            session.log.end_batch()
    hooks.call(f"on_{name}_epoch_end")
    session.results.end_stage(trainer, stage)
    hooks.call(f"on_{name}_end")
    session.end_evaluation()
    for part, training in modes.items():
        part.training = training
    trainer.leave(stage)


def sanity_check(run: "Training") -> None:
    """Evaluate some batches before training, so that what fails there fails now. Nothing of them is kept."""
    session, trainer, hooks = run.session, run.trainer, run.hooks
    with preserve_generators(), session.sanity_check():
        trainer.sanity_checking = True
        hooks.call("on_sanity_check_start")
        evaluate(run, "val", session.plan.trainer.sanity_batches)
        hooks.call("on_sanity_check_end")
        trainer.sanity_checking = False


def validate(run: "Training", due: bool) -> None:
    """Validate mid-epoch, or at its end; gradients are kept while accumulating."""
    if due:
        (run.hooks.method("on_validation_model_zero_grad") or run.module.zero_grad)()
    evaluate(run, "val")
    run.session.log.enter("train")
