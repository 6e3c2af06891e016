"""What a check says while it runs: which part begins, and in a file or a pipe each answer as soon as it is known."""

import sys
from collections.abc import Sequence

from lockstep.base.streams import notice
from lockstep.check.report import OURS, Answer, Finding

MODULE, ALONE = "the module and its data", "a stock Trainer in one process"


class Progress:
    """The parts of a check, and the answers that were shown. left: the parts that have not ended."""

    def __init__(self, worlds: Sequence[int], strategies: Sequence[str]) -> None:
        ours = [(name, world) for world in worlds for name in (*strategies, "virtual")]
        self.parts = [MODULE, ALONE, *map(on_ranks, worlds), *(f"{OURS}{name} on {world}" for name, world in ours)]
        self.parts.append(f"{OURS}single on 1")
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


def on_ranks(world: int) -> str:
    return f"a stock Trainer on {world} ranks"
