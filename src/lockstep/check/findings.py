"""The answers of a check: a line for each question, and what is known about a difference."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["identical", "within", "apart", "undecided"]
"""`within`: apart by no more than inputs moved by one unit in the last place make."""


@dataclass(frozen=True)
class Finding:
    """A difference.

    Attributes:
        question: what was compared, such as "two ranks and one process".
        quantity: what parts first: samples, loss, gradient, …; "source" for what no run shows.
        step: the optimizer step at which it parts, from 0, or None.
        where: the first layer that parts, the ranks, or a file and line.
        ratio: of the gradient norms, or None.
        cause: the likely cause, in one sentence without its full stop.
        advice: what to change, in the same form.
    """

    question: str
    quantity: str
    step: int | None = None
    where: str = ""
    ratio: float | None = None
    cause: str = ""
    advice: str = ""


@dataclass(frozen=True)
class Answer:
    """The verdict on one question.

    Attributes:
        difference: the largest relative difference of any quantity, or None if none was computed.
        tolerance: the difference that was expected, as measured.
        reason: of an undecided one.
    """

    question: str
    verdict: Verdict
    difference: float | None = None
    tolerance: float | None = None
    finding: Finding | None = None
    reason: str = ""
