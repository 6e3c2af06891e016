"""What a plain net is trained for, and what that asks of the data and of the net."""

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, ClassVar, Literal

from lockstep.config_error import require
from lockstep.schemas.target import Target

if TYPE_CHECKING:
    from lockstep.plan import Plan

Samples = Literal["pairs", "any", "inputs", "sequences", "theirs"]
"""What samples are: (input, target); these, or an input alone; an input, which is the target too; sequences of tokens,
each with the token that comes next, which is the target; whatever a LightningModule takes.
"""


class Task:
    """What all tasks say of themselves."""

    name: str
    samples: ClassVar[Samples] = "pairs"

    def check(self, plan: "Plan") -> None:
        """Refuse data and nets that the task cannot train."""

    def outputs(self, shape: tuple[int, ...], outputs: int) -> int:
        """The number that a net is told, for samples of a shape, and so many classes or regressed values."""
        return outputs

    def output_shape(self, plan: "Plan", outputs: int) -> tuple[int | None, ...] | int | None:
        """The shape of a sample's outputs, None for any size; or how many numbers they are in any shape; None: any."""
        return (outputs, *parts_of(plan)) if plan.data.classes else outputs


def parts_of(plan: "Plan") -> tuple[int, ...]:
    """The shape of a sample's target, where each part has a class of its own; () of one class a sample."""
    parts: tuple[int, ...] = getattr(plan.data, "parts", ())
    return parts


def require_own_net(plan: "Plan", wanted: str, hint: str) -> None:
    """Refuse the built-in nets, which make one row of outputs a sample."""
    reason = f"it makes one row of outputs a sample, and data={plan.data.name} asks for {wanted}"
    require(plan.model.own_code, "model", plan.model.name, reason, hint)


@dataclass(frozen=True)
class Auto(Task):
    """Classification where the data has classes, else regression."""

    name: Literal["auto"]

    def check(self, plan: "Plan") -> None:
        if plan.data.classes and parts_of(plan):
            require_own_net(plan, "a class for each part of it", "a net of your own")


@dataclass(frozen=True)
class Classification(Auto):
    """`ignore_index`: a target that does not count."""

    name: Literal["classification"]  # type: ignore[assignment]
    ignore_index: int | None = None

    def check(self, plan: "Plan") -> None:
        reason = f"the targets of data={plan.data.name} are real numbers, and no classes"
        require(plan.data.classes > 0, "task", self.name, reason, "task=regression")
        super().check(plan)


@dataclass(frozen=True)
class Regression(Task):
    name: Literal["regression"]

    def check(self, plan: "Plan") -> None:
        reason = f"the targets of data={plan.data.name} are classes, and no real numbers"
        require(plan.data.classes == 0, "task", self.name, reason, "task=classification")


@dataclass(frozen=True)
class Autoencoding(Task):
    name: Literal["autoencoding"]
    samples: ClassVar[Samples] = "inputs"

    def outputs(self, shape: tuple[int, ...], outputs: int) -> int:
        return prod(shape)

    def output_shape(self, plan: "Plan", outputs: int) -> int:
        return outputs


@dataclass(frozen=True)
class LanguageModelling(Task):
    """`ignore_index`: a token that is not to be predicted."""

    name: Literal["language_modelling"]
    ignore_index: int | None = None
    samples: ClassVar[Samples] = "sequences"

    def check(self, plan: "Plan") -> None:
        reason = f"data={plan.data.name} holds no sequences of whole numbers"
        require(hasattr(plan.data, "parts"), "task", self.name, reason, "data=text")
        require_own_net(plan, "the next token at each place", "model=char_rnn, or a net of your own")

    def output_shape(self, plan: "Plan", outputs: int) -> tuple[int | None, ...]:
        return None, outputs


@dataclass(frozen=True)
class OwnTask(Target, Task):
    """A loss of the user's own, and metrics beside it. Their names are asked of the task before any rank starts.

    better: by a metric's name, whether the smaller or the larger value is the better one.
    """

    better: dict[str, Literal["min", "max"]] = field(default_factory=dict)
    monitor: str = "loss"
    samples: ClassVar[Samples] = "any"

    def output_shape(self, plan: "Plan", outputs: int) -> None:
        """Any: the task itself meets the net's outputs."""
