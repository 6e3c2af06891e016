"""Lockstep's own runs of the module: one process, virtual ranks, and each strategy by Lightning and by raw."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lockstep.base.config_error import ConfigError, shorten
from lockstep.check.comparison import Subject
from lockstep.check.questions import Evidence
from lockstep.check.report import OURS, Answer, Finding, Verdict
from lockstep.command.job import run
from lockstep.launch.failure import RankFailed
from lockstep.runs.compare import compare

Outcome = Path | Answer
"""The folder of a run, or the answer to all questions about it if it cannot run."""


@dataclass
class LockstepRuns:
    """The runs of one check, each made once.

    words: the overrides of all runs. code: the module and the data, if they were passed from Python.
    runs: by strategy and number of ranks.
    """

    words: Sequence[str]
    code: Mapping[str, Any]
    folder: Path
    evidence: Evidence
    subject: Subject
    progress: Callable[[str], None]
    runs: dict[str, Outcome] = field(default_factory=dict)

    def answers(self, worlds: Sequence[int], strategies: Sequence[str]) -> Iterator[Answer]:
        subject, facts = self.subject, self.evidence.plain["facts"]
        self.words = [*self.words, f"trainer.limit_train_batches={subject.batches}", f"precision={subject.precision}"]
        self.words += [f"batch_size={subject.batch_size}"] * (not facts["has_batches"])
        for world, name in ((world, name) for world in worlds for name in strategies):
            both, title = self.run(name, world, engine="both"), f"{OURS}{name} on {world} ranks"
            inner = both / "lightning" if isinstance(both, Path) else self.run(name, world)
            raw = both / "raw" if isinstance(both, Path) else both
            yield self.compared(f"{title} and virtual ranks", world, inner, self.run("virtual", world))
            if not self.evidence.differs:
                yield self.compared(f"{title} and one process", world, inner, self.run("single", 1))
            yield self.compared(f"{title}, by Lightning and by raw", world, inner, raw)

    def run(self, strategy: str, world: int, engine: str = "lightning") -> Outcome:
        key = f"{strategy}_{world}{'_both' * (engine == 'both')}"
        if key not in self.runs:
            self.progress(f"{OURS}{strategy} on {world}")
            words = [*self.words, f"strategy={strategy}", f"devices={world}", f"engine={engine}"]
            words += ["strategy.in_process=false"] * (strategy in ("single", "virtual"))  # as at no terminal
            self.runs[key] = self.folder / key
            try:
                with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                    run([*words, f"hydra.run.dir={self.folder / key}"], **self.code)
            except (ConfigError, RankFailed) as error:
                last = shorten(str(error).strip().splitlines()[-1])
                reason = last if isinstance(error, ConfigError) else "its run fails"
                is_other = strategy == "virtual" or engine == "both"  # which refuse what the user's ranks may do
                is_refused = isinstance(error, ConfigError) and is_other
                verdict: Verdict = "not applicable" if is_refused else "undecided"
                self.runs[key] = Answer("", verdict, reason=f"Lockstep does not run it: {reason}", error=last)
        return self.runs[key]

    def compared(self, question: str, world: int, one: Outcome, other: Outcome) -> Answer:
        for each in (one, other):
            if isinstance(each, Answer):
                return replace(each, question=question, world=world)
        comparison, first = compare(one, other), None  # type: ignore[arg-type]
        if not comparison.within_tolerance:
            divergence: Any = comparison.first_divergence
            first = Finding(divergence.name, where=str(divergence.first).replace(f"{self.folder}/", ""))
            return Answer(question, "apart", divergence.difference, comparison.tolerance.within, first, world=world)
        verdict: Any = "within" if comparison.max_diff else "identical"
        return Answer(question, verdict, comparison.max_diff, comparison.tolerance.within, world=world)


def settled(answer: Answer, evidence: Evidence, stock: Sequence[Answer]) -> Answer:
    """Return an answer about Lockstep's runs: undecided, if it follows from nothing that a stock Trainer shows.

    Only of steps that draw random numbers are virtual ranks the judge. They cannot be that of a module that calls
    collectives or has generators itself.
    """
    if answer.finding is None:
        return answer
    steps = [step for rank in evidence.worlds[answer.world].get("straight", ()) for step in rank.get("steps", ())]
    calls = any(step["calls"] for step in steps)
    fair = not calls and not any({*step["random"]} - {"torch", "random", "numpy"} for step in steps)
    if evidence.draws and fair and answer.question.endswith("virtual ranks"):
        return answer
    if not calls and any(each.verdict == "apart" and answer.follows(each) for each in stock):
        return answer
    reason = "the module calls collectives itself" if calls else "a stock Trainer's ranks show no such mistake"
    reason += f", and Lockstep's cannot be compared: {answer.finding.place()}"
    verdict: Verdict = "not applicable" if calls and answer.question.endswith("virtual ranks") else "undecided"
    return replace(answer, verdict=verdict, finding=None, reason=reason)


def corrected(answer: Answer, ours: Sequence[Answer]) -> Answer:
    """Mark what is apart in a stock Trainer and right in all of Lockstep's runs on as many ranks."""
    runs = [each for each in ours if each.world == answer.world and each.verdict != "not applicable"]
    right = bool(runs) and all(each.verdict in ("identical", "within") for each in runs)
    by_virtual = answer.finding is not None and answer.finding.quantity in ("samples", "random", "validation", "rate")
    right = right and (by_virtual or any(each.question.endswith("one process") for each in runs))
    return replace(answer, corrected=right and answer.verdict == "apart" and answer.world > 1)
