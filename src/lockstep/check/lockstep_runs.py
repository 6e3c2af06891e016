"""Lockstep's own runs of the module: one process, virtual ranks, and each strategy by Lightning and by raw."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from lockstep.base.config_error import ConfigError, shorten
from lockstep.check.evidence import Evidence
from lockstep.check.findings import OURS, Answer, Finding
from lockstep.command.job import run
from lockstep.launch.failure import RankFailed
from lockstep.runs.compare import compare

Failed = str
"""Why a run could not be made."""


class LockstepRuns:
    """The runs of one check, each made once, in the folder `lockstep`.

    words: the overrides of all runs. code: the module and the data, if they were passed from Python.
    draws: whether training draws random numbers, or a layer has statistics of a rank: only virtual ranks have the same.
    """

    def __init__(
        self, words: Sequence[str], code: Mapping[str, Any], folder: Path, draws: bool, progress: Callable[[str], None]
    ) -> None:
        self.words, self.code, self.folder, self.draws, self.progress = words, code, folder, draws, progress
        self.runs: dict[str, Path | Failed] = {}

    def answers(self, worlds: Sequence[int], strategies: Sequence[str]) -> Iterator[Answer]:
        for world in worlds:
            virtual = self.folder_of("virtual", world)
            for name in strategies:
                ranks = self.folder_of(name, world, engine="both")
                inner = ranks / "lightning" if isinstance(ranks, Path) else ranks
                title = f"{name} on {world} ranks"
                yield self.compared(f"{OURS}{title} and virtual ranks", world, inner, virtual)
                if not self.draws:
                    yield self.compared(f"{OURS}{title} and one process", world, inner, self.folder_of("single", 1))
                raw = ranks / "raw" if isinstance(ranks, Path) else ranks
                yield self.compared(f"{OURS}{title}, by Lightning and by raw", world, inner, raw)

    def folder_of(self, strategy: str, world: int, engine: str = "lightning") -> Path | Failed:
        """Return the folder of a run, or why there is none."""
        key = f"{strategy}_{world}"
        if key not in self.runs:
            self.progress(f"Lockstep, {strategy} on {world}")
            folder = self.folder / "lockstep" / key
            words = [*self.words, f"strategy={strategy}", f"devices={world}", f"engine={engine}"]
            try:
                with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                    run([*words, f"hydra.run.dir={folder}"], **self.code)
                self.runs[key] = folder
            except (ConfigError, RankFailed) as error:
                self.runs[key] = f"Lockstep does not run it: {shorten(str(error).strip().splitlines()[-1])}"
        return self.runs[key]

    def compared(self, question: str, world: int, one: Path | Failed, other: Path | Failed) -> Answer:
        for each in (one, other):
            if isinstance(each, str):
                return Answer(question, "undecided", reason=each, world=world)
        comparison = compare(one, other)
        if comparison.within_tolerance:
            verdict: Any = "within" if comparison.max_diff else "identical"
            return Answer(question, verdict, comparison.max_diff, comparison.tolerance.within, world=world)
        first: Any = comparison.first_divergence
        finding = Finding(first.name, where=str(first.first).replace(f"{self.folder / 'lockstep'}/", ""))
        return Answer(question, "apart", first.difference, comparison.tolerance.within, finding, world=world)


def settled(answer: Answer, evidence: Evidence) -> Answer:
    """Return an answer about Lockstep's runs: undecided, if it is theirs alone and a stock Trainer's ranks are right.

    Only of steps that draw random numbers are virtual ranks the judge. They cannot be that of a module that calls
    collectives or has generators itself.
    """
    legs = evidence.worlds[answer.world]
    steps = [step for rank in legs["straight"] for step in rank.get("steps", ())]
    fair = not any(step["calls"] or {*step["random"]} - {"torch", "random", "numpy"} for step in steps)
    if answer.finding is None or (evidence.draws and fair and answer.question.endswith("virtual ranks")):
        return answer
    reason = f"a stock Trainer's ranks show no mistake, and Lockstep's cannot be compared: {answer.finding.place()}"
    return replace(answer, verdict="undecided", finding=None, reason=reason)
