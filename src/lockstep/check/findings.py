"""The answers of a check: a line for each question, and what is known about a difference."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Literal

from lockstep.base.files import finite, save_json, save_text
from lockstep.runs.run_files import REPORT

Verdict = Literal["identical", "within", "apart", "undecided"]
"""`within`: apart by no more than a multiple of what inputs moved by one unit in the last place make."""
CORRECTED = "corrected here, wrong in a stock Trainer: "


@dataclass(frozen=True)
class Finding:
    """A difference.

    Attributes:
        question: what was compared, such as "2 ranks and one process".
        quantity: what parts first: samples, loss, gradient, …; "source" for what no run shows.
        step: the optimizer step at which it parts, from 0, or None.
        where: the first layer or tensor that parts, or a file and line.
        ratio: between the norms of all gradients, or None.
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
        world: the ranks that were compared, if several were.
        corrected: whether Lockstep's own runs agree where the stock Trainer's do not.
    """

    question: str
    verdict: Verdict
    difference: float | None = None
    tolerance: float | None = None
    finding: Finding | None = None
    reason: str = ""
    world: int = 1
    corrected: bool = False

    def lines(self) -> Iterator[str]:
        """Yield the verdict, and for what is apart where, why and what to change."""
        yield f"  {self.verdict:<10} {self.question}{self.details()}"
        if self.finding is not None and self.finding.cause:
            yield f"{'':13}{CORRECTED if self.corrected else 'likely cause: '}{self.finding.cause}."
            if self.finding.advice:
                yield f"{'':13}to change: {self.finding.advice}."
        elif self.finding is not None:
            yield f"{'':13}{CORRECTED if self.corrected else ''}no known cause fits."

    def details(self) -> str:
        if self.finding is None:
            limit, difference = self.tolerance or 0.0, self.difference or 0.0
            expected = f", expected up to {limit:.0e}" if difference <= limit else ""  # of the last step's gradient
            measured = f": {difference:.0e}{expected}" if difference else ""
            return measured if self.verdict == "within" else f": {self.reason}" if self.reason else ""
        finding = self.finding
        step = "" if finding.step is None else f" from step {finding.step} on"
        size = f", by {self.difference:.1e}" if self.difference and self.difference < 1e300 else ""
        ratio = (
            f", norm of the gradient × {finding.ratio:.4g}" if finding.ratio and abs(finding.ratio - 1) > 1e-6 else ""
        )
        return f": {finding.quantity}{f' ({finding.where})' if finding.where else ''}{step}{size}{ratio}"


@dataclass(frozen=True)
class Report:
    """All answers about a module and its data, in the folder with check.json and report.html."""

    folder: Path
    title: str
    precision: str
    answers: tuple[Answer, ...]

    @property
    def is_apart(self) -> bool:
        return any(answer.verdict == "apart" for answer in self.answers)

    def text(self) -> str:
        lines = [line for answer in self.answers for line in answer.lines()]
        count = sum(answer.verdict == "apart" for answer in self.answers)
        verdict = f"{count} of {len(self.answers)} are apart" if count else "nothing is apart"
        return "\n".join([f"{self.title}, {self.precision}", "", *lines, "", verdict, f"  {self.folder}"])

    def save(self) -> None:
        answers = [finite(asdict(answer)) for answer in self.answers]
        save_json(self.folder / "check.json", {"title": self.title, "precision": self.precision, "answers": answers})
        page = (
            f"<!doctype html><meta charset=utf-8><title>{escape(self.title)}</title><pre>{escape(self.text())}</pre>\n"
        )
        save_text(self.folder / REPORT, page)
