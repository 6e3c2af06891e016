"""What the legs have measured, and the answers that are made of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from lockstep.check.causes import CAUSES
from lockstep.check.differences import Tolerance
from lockstep.check.findings import Answer, Finding
from lockstep.check.sketches import Trace

STATE = ("parameters", "optimizer", "buffers")


@dataclass(frozen=True)
class Evidence:
    """The legs of one process, and those of several ranks by their number."""

    single: Mapping[str, list[Trace]]
    worlds: Mapping[int, Mapping[str, list[Trace]]]
    tolerance: Tolerance

    @property
    def straight(self) -> Trace:
        return self.single["straight"][0]

    @property
    def plain(self) -> Trace:
        return self.single["plain"][0]

    @property
    def last(self) -> float:
        """Return the tolerance of the last gradient."""
        return self.tolerance("gradient", 10**6)

    @property
    def varied(self) -> str:
        varies = self.straight["facts"]["varies"]
        return "the data draws a sample anew whenever it is read, and not from a generator of the process" * bool(
            varies
        )

    @property
    def plain_draws(self) -> bool:
        return self.plain["facts"]["varies"] or any(step["drew"] for step in self.plain["steps"])

    @cached_property
    def draws(self) -> str:
        """Return why the steps of two layouts cannot be compared, if they draw random numbers."""
        if any(step["drew"] for step in self.straight["steps"]):
            return "training_step draws random numbers that depend on the layout"
        return self.varied

    @property
    def coupling(self) -> dict[str, Any]:
        facts: dict[str, Any] = self.single.get("coupling", [{}])[0].get("facts", {})
        return facts


def answered(
    question: str, difference: float, tolerance: float, finding: Finding | None, reason: str = "", world: int = 1
) -> Answer:
    """Return an answer: apart or noted with a finding, undecided with a reason."""
    if finding is not None:
        return Answer(question, "noted" if finding.usual else "apart", difference, tolerance, finding, world=world)
    if reason:
        return Answer(question, "undecided", difference, tolerance, None, reason, world)
    return Answer(question, "within" if difference else "identical", difference, tolerance, world=world)


def finding_of(
    cause: str, quantity: str, trace: Trace | None = None, step: int | None = None, where: str = "", **more: Any
) -> Finding:
    """Return a finding at a step of a trace, which counts them from 0; a state is that before the step."""
    known: dict[str, Any] = {"cause": "", "change": "", **CAUSES.get(cause, {})}
    usual = more.pop("usual", known.get("usual", False))
    epoch, number = None, None
    if trace is not None and step is not None:
        number = step + (quantity not in STATE)
        epoch = trace["steps"][min(max(number - 1, 0), len(trace["steps"]) - 1)]["epoch"] + 1
    return Finding(quantity, epoch, number, where, cause=known["cause"], advice=known["change"], usual=usual, **more)


def failed(question: str, traces: Sequence[Trace] | None) -> Answer | None:
    """Return the answer to a question whose leg has failed or is missing."""
    errors = [trace["error"] for trace in traces or () if "error" in trace]
    if traces and not errors:
        return None
    return Answer(question, "undecided", reason=errors[0] if errors else "there is nothing to compare")


def samples_of(trace: Trace, epoch: int) -> list[str]:
    """Return the samples of an epoch in their order."""
    return [*chain(*(step["samples"] for step in trace["steps"] if step["epoch"] == epoch))]
