"""What the legs have measured, and the answers that are made of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from lockstep.check.causes import CAUSES
from lockstep.check.differences import Tolerance
from lockstep.check.findings import Answer, Finding
from lockstep.check.legs import Results
from lockstep.check.probe import Trace

LAST = 10**6
"""A step behind all others: the tolerance there is that of the last one."""
STATE = ("parameters", "optimizer", "buffers")


@dataclass(frozen=True)
class Evidence:
    """The legs of one process, and those of several ranks by their number."""

    single: Results
    worlds: dict[int, Results]
    tolerance: Tolerance

    @property
    def straight(self) -> Trace:
        return self.single["straight"][0]

    @cached_property
    def draws(self) -> str:
        """Return why the steps of two layouts cannot be compared, if they draw random numbers."""
        if any(step["drew"] for step in self.straight["steps"]):
            return "training_step draws random numbers: see the virtual ranks"
        return "the data draws a sample anew whenever it is read" if self.varies else ""

    @property
    def varies(self) -> bool:
        return bool(self.straight["facts"].get("varies"))

    @property
    def coupling(self) -> dict[str, Any]:
        facts: dict[str, Any] = self.single.get("coupling", [{}])[0].get("facts", {})
        return facts


def answered(question: str, difference: float, tolerance: float, finding: Finding | None, reason: str = "") -> Answer:
    """Return an answer: apart with a finding, undecided with a reason."""
    if finding is not None:
        return Answer(question, "apart", difference, tolerance, finding)
    if reason:
        return Answer(question, "undecided", difference, tolerance, None, reason)
    return Answer(question, "within" if difference else "identical", difference, tolerance)


def finding_of(
    question: str, cause: str, quantity: str, step: int | None = None, where: str = "", ratio: float | None = None
) -> Finding:
    known = CAUSES.get(cause, {"cause": "", "change": ""})
    return Finding(question, quantity, step, where, ratio, known["cause"], known["change"])


def failed(question: str, traces: Sequence[Trace] | None) -> Answer | None:
    """Return the answer to a question whose leg has failed or is missing."""
    errors = [trace["error"] for trace in traces or () if "error" in trace]
    if traces and not errors:
        return None
    return Answer(question, "undecided", reason=errors[0] if errors else "there is nothing to compare")


def samples_of(trace: Trace, epoch: int) -> list[str]:
    """Return the samples of an epoch in their order."""
    return [*chain(*(step["samples"] for step in trace["steps"] if step["epoch"] == epoch))]
