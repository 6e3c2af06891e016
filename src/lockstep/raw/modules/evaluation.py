"""An evaluation: this rank's share of each loader through the module's step, and what it logs, over all ranks."""

from itertools import islice
from typing import TYPE_CHECKING

import torch

from lockstep.parallel import broadcast_buffers
from lockstep.random_state import generators_kept
from lockstep.raw.modules.hooks import step_arguments

if TYPE_CHECKING:
    from lockstep.raw.modules.training import Training

NAMES = {"val": "validation", "test": "test"}
"""How hooks and steps call a stage."""


@torch.inference_mode()
def evaluate(run: "Training", stage: str, most: int | None = None) -> None:
    """All batches of all loaders of a stage, or so many of each. Its values become results."""
    session, trainer, hooks, module, name = run.session, run.trainer, run.hooks, run.module, NAMES[stage]
    loaders = (getattr(session.source.owner or module, f"{stage}_dataloader"))()
    loaders = loaders if isinstance(loaders, list) else [loaders]
    trainer.enter(stage, loaders)
    modes = {own: own.training for own in module.modules()}
    getattr(module, f"on_{name}_model_eval")()
    broadcast_buffers(module)
    session.begin_evaluation(stage)
    hooks.call(f"on_{name}_start")
    hooks.call(f"on_{name}_epoch_start")
    step = getattr(module, f"{name}_step")
    for index, loader in enumerate(loaders):
        which = [index] if len(loaders) > 1 else []
        for number, batch in enumerate(islice(loader, most)):
            batch = session.transfer(batch, index)
            session.begin_evaluation_batch(stage, index)
            hooks.call(f"on_{name}_batch_start", batch, number, *which)
            with run.forward_context():
                outputs = step(*step_arguments(step, batch, number, *which))
            hooks.call(f"on_{name}_batch_end", outputs, batch, number, *which)
            session.logged.end_batch()
    hooks.call(f"on_{name}_epoch_end")
    session.end_stage(trainer, stage)
    hooks.call(f"on_{name}_end")
    session.end_evaluation()
    for own, training in modes.items():
        own.training = training
    trainer.leave(stage)


def sanity_check(run: "Training") -> None:
    """Some batches before training, so that what fails there fails now. Nothing of them is kept."""
    session, trainer, hooks = run.session, run.trainer, run.hooks
    with generators_kept():
        trainer.sanity_checking = True
        session.begin_check()
        hooks.of_callbacks("on_sanity_check_start")
        evaluate(run, "val", session.plan.trainer.sanity_batches)
        hooks.of_callbacks("on_sanity_check_end")
        session.end_check()
        trainer.sanity_checking = False
