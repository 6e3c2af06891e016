"""The options of the group `task`: what a plain net is trained for, and what that requires of the data and the net."""

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, ClassVar, Literal

from lockstep.constraints import Rules
from lockstep.schemas.target import Target

if TYPE_CHECKING:
    from lockstep.plan import Plan

Samples = Literal["pairs", "any", "inputs", "sequences", "module"]
"""What samples are: (input, target) pairs; pairs or single inputs; inputs that are the targets, too; sequences of
tokens, whose targets are the next tokens; anything that a LightningModule takes.
"""


class Task:
    """Attributes of all tasks."""

    name: str
    samples: ClassVar[Samples] = "pairs"

    def rules(self, plan: "Plan") -> Rules:
        fits = isinstance(plan.model, Target) or not plan.data.parts or self.samples not in ("pairs", "sequences")
        reason = f"it has one row of outputs per sample, and data={plan.data.name} has several targets per sample"
        yield fits, "model", reason, "model=char_rnn task=language_modelling for a text, or a net of your own"

    def outputs(self, shape: tuple[int, ...], outputs: int) -> int:
        """Return the argument `outputs` of a net, from the shape of a sample and the number of classes or targets."""
        return outputs


@dataclass(frozen=True)
class Auto(Task):
    """Classification if the data has classes, otherwise regression."""

    name: Literal["auto"]


@dataclass(frozen=True)
class Classification(Task):
    """ignore_index: a target that does not count."""

    name: Literal["classification"]
    ignore_index: int | None = None

    def rules(self, plan: "Plan") -> Rules:
        reason = f"the targets of data={plan.data.name} are real numbers, not classes"
        yield plan.data.classes > 0, "task", reason, "task=regression"
        yield from super().rules(plan)


@dataclass(frozen=True)
class Regression(Task):
    name: Literal["regression"]

    def rules(self, plan: "Plan") -> Rules:
        reason = f"the targets of data={plan.data.name} are classes, not real numbers"
        yield plan.data.classes == 0, "task", reason, "task=classification"


@dataclass(frozen=True)
class Autoencoding(Task):
    name: Literal["autoencoding"]
    samples: ClassVar[Samples] = "inputs"

    def outputs(self, shape: tuple[int, ...], outputs: int) -> int:
        return prod(shape)


@dataclass(frozen=True)
class LanguageModelling(Task):
    """ignore_index: a token that is not predicted."""

    name: Literal["language_modelling"]
    ignore_index: int | None = None
    samples: ClassVar[Samples] = "sequences"

    def rules(self, plan: "Plan") -> Rules:
        yield plan.data.parts != (), "task", f"data={plan.data.name} has no sequences of tokens", "data=text"
        yield from super().rules(plan)


BuiltInTask = Auto | Classification | Regression | Autoencoding | LanguageModelling


@dataclass(frozen=True)
class UserTask(Target, Task):
    """A loss of the user's, and metrics. The task is asked for the last two fields before any rank starts.

    better: for each metric, whether smaller or larger values are better.
    """

    better: dict[str, Literal["min", "max"]] = field(default_factory=dict)
    monitor: str = "loss"
    samples: ClassVar[Samples] = "any"
