"""Where the steps of a LightningModule spend their time: marks around its own methods, the same for both engines.

Automatic optimization: the step is `forward`; what follows, to the end of the backward pass, `backward`; from there to
the end of the optimizer's step `optimizer`. Manual: what leads to a backward pass is `forward`.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from typing import Any

from torch.optim import Optimizer

from lockstep.sums.phases import Phases
from lockstep.targets.replace_method import replace_method


def wrap_phases(module: Any, phases: Phases) -> None:
    """Wrap training_step and backward of this one object, around whatever else is wrapped."""

    def training_step(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def step(*arguments: Any, **named: Any) -> Any:
            outputs = original(*arguments, **named)
            phases.mark("forward")
            return outputs

        return step

    def backward(original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def passing(*arguments: Any, **named: Any) -> None:
            if not module.automatic_optimization:
                phases.mark("forward")
            original(*arguments, **named)
            phases.mark("backward")

        return passing

    replace_method(module, "training_step", training_step)
    replace_method(module, "backward", backward)


def mark_steps(optimizers: Iterable[Optimizer], phases: Phases) -> None:
    """Mark the end of each optimizer step."""
    for own in optimizers:
        with suppress(AttributeError):  # a user's own may wrap another, and never have been made as one
            own.register_step_post_hook(lambda *_: phases.mark("optimizer"))
