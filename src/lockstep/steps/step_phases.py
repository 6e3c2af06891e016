"""Where the steps of a LightningModule spend their time: marks around its own methods, the same for both engines.

Automatic optimization: the step is `forward`; what follows, to the end of the backward pass, `backward`; from there to
the end of the optimizer's step `optimizer`. Manual: what leads to a backward pass is `forward`.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from torch.optim import Optimizer

from lockstep.sums.phases import Phases
from lockstep.targets.kinds import replace_method


def wrap_phases(module: Any, phases: Phases) -> None:
    """Wrap training_step and backward of this one object, around whatever else is wrapped."""

    def training_step(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        outputs = original(*arguments, **options)
        phases.mark("forward")
        return outputs

    def backward(original: Callable[..., None], *arguments: Any, **options: Any) -> None:
        if not module.automatic_optimization:
            phases.mark("forward")
        original(*arguments, **options)
        phases.mark("backward")

    replace_method(module, "training_step", training_step)
    replace_method(module, "backward", backward)


def mark_steps(optimizers: Iterable[Optimizer], phases: Phases) -> None:
    """Mark the end of each optimizer step."""
    for optimizer in optimizers:
        with suppress(AttributeError):  # one of a user's may wrap another, and not call Optimizer.__init__
            optimizer.register_step_post_hook(lambda *_: phases.mark("optimizer"))
