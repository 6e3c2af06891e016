"""The answers of a check: what is apart in full, all else in a line, and the files check.json and report.html."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from textwrap import fill
from typing import Literal

from lockstep.base.files import finite, save_json, save_text
from lockstep.base.streams import notice
from lockstep.runs.report import render
from lockstep.runs.run_files import REPORT

Verdict = Literal["identical", "within", "apart", "noted", "undecided", "not applicable"]
"""`within`: no further apart than a multiple of what inputs moved by one unit in the last place make. `noted`: apart
by what a Trainer does to everybody's code, or what is usual; no mistake. `not applicable`: left out of the text."""
CORRECTED = "; Lockstep's runs are right as it is"
LABELS = {"batch": "batches that a step comes after", "applied": "gradient before the step"}
"""Quantities whose names do not say what they are."""
MODULE, ALONE, ON_RANKS = "the module and its data", "a stock Trainer in one process", "a stock Trainer on {} ranks"
OURS = "Lockstep: "
"""What the questions about Lockstep's own runs begin with."""


@dataclass(frozen=True)
class Finding:
    """A difference: the quantity that differs first ("source": what no run shows), where, and the likely cause.

    epoch, step: from 1, and counted over all epochs; a state is that after the step, after step 0 before the first.
    where: the layer or tensor, or a file and line. ratio: between the norms of all gradients. usual: no mistake.
    """

    quantity: str
    epoch: int | None = None
    step: int | None = None
    where: str = ""
    ranks: str = ""
    ratio: float | None = None
    facts: str = ""
    cause: str = ""
    advice: str = ""
    usual: bool = False

    def place(self, difference: float | None = None) -> str:
        """Return what differs, where, and by how much."""
        step = f"epoch {self.epoch}, step {self.step}" if self.step else "before the first step"
        size = f"by {difference:.1e}" if difference and difference < 1e300 else ""
        ratio = f"gradient norm × {self.ratio:.4g}" if self.ratio and abs(self.ratio - 1) > 1e-6 else ""
        shown = (self.where, "" if self.step is None else step, self.ranks, size, ratio, self.facts)
        return ", ".join([LABELS.get(self.quantity, self.quantity), *filter(None, shown)])


@dataclass(frozen=True)
class Answer:
    """The verdict on one question about a world.

    difference, tolerance: the largest relative difference, and the expected one. reason: why it is undecided, or
    compared for the first steps alone. corrected: whether Lockstep's own runs agree where a stock Trainer's do not.
    """

    question: str
    verdict: Verdict
    difference: float | None = None
    tolerance: float | None = None
    finding: Finding | None = None
    reason: str = ""
    error: str = ""
    world: int = 1
    corrected: bool = False

    @property
    def explanation(self) -> str:
        """Return the reason, with the error unless it is in there."""
        return self.reason if self.error in self.reason else f"{self.reason}: {self.error}"

    def line(self) -> str:
        first = next(self.lines(), f"{self.question}{': ' * bool(self.reason)}{self.explanation}")
        return f"  {self.verdict:<10} {first}"

    def lines(self) -> Iterator[str]:
        """Yield of what is apart or noted where, why, and what to change."""
        if self.finding is None:
            return
        yield f"{self.question}: {self.finding.place(self.difference)}"
        expected = f"; expected up to {self.tolerance:.0e}" if self.tolerance else ""
        cause = self.finding.cause or f"not known{expected}. Until then all that was compared agrees"
        yield f"{'likely ' * bool(self.finding.cause)}cause: {cause}."
        if self.finding.advice:
            yield f"to change: {self.finding.advice}{CORRECTED * self.corrected}."

    def follows(self, earlier: "Answer") -> bool:
        """Whether this difference is a consequence of another, or another sight of it."""
        one, other = self.finding, earlier.finding
        if one is None or other is None:
            return False
        if one.cause and one.cause == other.cause:
            return True
        if self.question.startswith(OURS):
            of_ranks = earlier.world > 1 and not earlier.question.endswith("resumed")
            return of_ranks and (other.quantity != "validation" or one.quantity == "validation")
        if not self.question.endswith("resumed"):
            return False
        by_ranks = self.world == earlier.world and earlier.question == f"{self.world} ranks and one process"
        return by_ranks or (
            earlier.question.endswith("resumed") and (one.quantity, one.where) == (other.quantity, other.where)
        )


@dataclass
class Report:
    """The answers about a module and its data, in the folder with check.json and report.html.

    left: the parts of the check that have not ended, as it was interrupted.
    """

    folder: Path
    title: str = ""
    precision: str = ""
    answers: Sequence[Answer] = ()
    left: Sequence[str] = ()

    @property
    def is_apart(self) -> bool:
        return any(answer.verdict == "apart" for answer in self.answers)

    def having(self, verdict: Verdict) -> list[Answer]:
        return [answer for answer in self.answers if answer.verdict == verdict]

    def findings(self) -> list[tuple[Answer, list[Answer]]]:
        """Return each difference with those that follow from it."""
        groups: list[tuple[Answer, list[Answer]]] = []
        for answer in self.having("apart"):
            earlier = next((others for first, others in groups if answer.follows(first)), None)
            groups.append((answer, [])) if earlier is None else earlier.append(answer)
        return groups

    def text(self) -> str:
        interrupted = [f"Interrupted: nothing is known of {', '.join(self.left)}."] * bool(self.left)
        if not self.answers:
            return "".join(interrupted)
        lines, groups = [f"{self.title}, {self.precision}", ""], dict[tuple[Verdict, str], list[Answer]]()
        for answer, others in self.findings():
            first, *rest = answer.lines()
            rest += [f"follows from it: {', '.join(each.question for each in others)}"] * bool(others)
            lines += [indented("apart", first), *(indented("", line) for line in rest)]
        for answer in self.having("noted"):
            cause = answer.finding.cause if answer.finding else ""
            lines.append(indented("noted", f"{answer.question}: {cause}."))
        verdicts: tuple[Verdict, ...] = ("identical", "within", "undecided")
        for answer in chain(*map(self.having, verdicts)):
            groups.setdefault((answer.verdict, answer.explanation), []).append(answer)
        lines += [indented(verdict, listed(group)) for (verdict, _), group in groups.items()]
        undecided, count = len(self.having("undecided")), len(self.findings())
        summary = f"{count} difference{'s' * (count > 1)}" if count else "nothing is apart"
        summary += " by then" * bool(self.left) + f"; {undecided} undecided" * bool(undecided)
        return "\n".join([*lines, "", summary, *interrupted, f"  {self.folder}"])

    def end(self) -> None:
        if self.answers:
            self.save()
        if self.answers or self.left:
            print(self.text(), flush=True)

    def save(self) -> None:
        groups = self.findings()
        answers = [finite(asdict(answer)) for answer in self.answers]
        follows = {other.question: first.question for first, others in groups for other in others}
        content = {"title": self.title, "precision": self.precision, "differences": len(groups)}
        content |= {"interrupted": [*self.left]} if self.left else {}
        save_json(self.folder / "check.json", {**content, "follows_from": follows, "answers": answers})
        save_text(self.folder / REPORT, render({"title": self.title, "report": self}, "check.html"))


class Progress:
    """The parts of a check, and the answers that were shown. left: the parts that have not ended."""

    def __init__(self, worlds: Sequence[int], strategies: Sequence[str]) -> None:
        ours = [f"{name} on {world}" for world in worlds for name in (*strategies, "virtual")]
        self.parts = [MODULE, ALONE, *map(ON_RANKS.format, worlds), *(OURS + each for each in (*ours, "single on 1"))]
        self.left, self.shown = self.parts, set[tuple[str, Finding | None]]()

    def begin(self, part: str) -> None:
        number = self.parts.index(part)
        self.left = self.parts[number:]
        notice(f"check {number + 1}/{len(self.parts)}: {part}")

    def show(self, answers: list[Answer]) -> list[Answer]:
        """Print a line for each new answer, unless stdout is a terminal; return all."""
        for answer in answers:
            key = answer.question, answer.finding
            if key not in self.shown and answer.verdict != "not applicable" and not sys.stdout.isatty():
                print(answer.line(), flush=True)
            self.shown.add(key)
        return answers


def indented(verdict: str, line: str) -> str:
    return fill(line, 120, initial_indent=f"  {verdict:<10} ", subsequent_indent=" " * 15, break_long_words=False)


def listed(answers: Sequence[Answer]) -> str:
    """Return the questions of answers with the same verdict and reason."""
    questions, reason = ", ".join(each.question for each in answers), answers[0].explanation
    if answers[0].verdict == "within":
        questions += f" (by {max(answer.difference or 0.0 for answer in answers):.0e} at most)"
    return f"{questions}: {reason}" if reason else f"{len(answers)}: {questions}"
