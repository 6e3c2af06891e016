"""One check, from overrides to check.json: the stock legs, their verdicts, and Lockstep's own runs."""

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from omegaconf import open_dict

from lockstep.base.config_error import ConfigError, config_error, require
from lockstep.base.private_api.cpython import kill_forkserver
from lockstep.base.streams import redirect_to_null
from lockstep.check.differences import measured
from lockstep.check.evidence import Evidence
from lockstep.check.findings import Answer, Report
from lockstep.check.layers import first_layer
from lockstep.check.legs import VAL_BATCHES, Legs, Results, Subject
from lockstep.check.lockstep_runs import LockstepRuns, settled
from lockstep.check.questions import answers as of_one_process
from lockstep.check.ranks import layouts
from lockstep.command.build import plan_from
from lockstep.command.compose import compose_job
from lockstep.command.entry_point import make_output_dir, output_dir
from lockstep.command.hydra_errors import planning
from lockstep.command.job import with_earlier_words
from lockstep.launch import forkserver
from lockstep.launch.failure import RankFailed
from lockstep.launch.start import start_ranks
from lockstep.plan.plan import Plan
from lockstep.plan.schemas import ProcessGroup
from lockstep.plan.schemas.groups import key_of
from lockstep.plan.schemas.run import ENGINES, EVERY_RUN
from lockstep.plan.targets.frames import UserCodeError
from lockstep.plan.targets.from_python import Code, words_of
from lockstep.plan.world import World
from lockstep.strategies import STRATEGIES

LEGS = "lockstep.check.legs"
KEYS = {"devices": "2", "strategies": "ddp", "steps": "20"}
FIXED = ("max_epochs=2", f"trainer.limit_val_batches={VAL_BATCHES}", "logger=none", "test=false", "record.weights=step")
"""Overrides of Lockstep's own runs."""
HANGS = "waits for the other ranks"
"""In a cause that the source shows: ranks are not started."""
PATIENCE = 60.0
"""Seconds that a rank waits for the others: a rank that fails alone leaves them in a collective."""


def check(
    overrides: Sequence[str] = (),
    *,
    model: Code | None = None,
    data: Code | None = None,
    devices: int | Sequence[int] = 2,
    strategies: str | Sequence[str] = "ddp",
    steps: int = 20,
) -> Report:
    """Do what `python -m lockstep.check OVERRIDES` does: print the verdicts, and return them.

    Args:
        overrides: as for train.py; devices=, strategies= and steps= replace the keywords.

    Raises:
        ConfigError: an override or a keyword is invalid, or the module does not train in a single process.
    """
    folder, typed = output_dir("check"), {key_of(word): word.partition("=")[2] for word in overrides}
    words = [word for word in overrides if key_of(word) not in KEYS]
    code = {name: value for name, value in (("model", model), ("data", data)) if value is not None}
    worlds = numbers("devices", typed.get("devices", devices))
    count, *more = numbers("steps", typed.get("steps", steps))
    require(not more, "steps", typed.get("steps", steps), "it takes one number", "steps=20")
    names = names_of(typed.get("strategies", strategies), typed)
    with silent_ranks():
        plan = planned(words, code, folder)
        make_output_dir(folder)
        progress = Progress(3 + len(worlds) * (2 + len(names)))
        size, batches = divisible(plan.batch_size, worlds), max(1, count // 2)
        progress("one process")
        subject = Subject(plan.model.call, plan.data.call, size, batches, plan.seed, sync_batchnorm=plan.sync_batchnorm)
        single, subject = in_one_process(subject, folder)
        legs = {}
        for world in worlds:
            progress(f"{world} ranks")
            hangs = [each["cause"] for each in single["source"][0]["findings"] if HANGS in each["cause"]]
            legs[world] = {"plain": [{"error": hangs[0]}]} if hangs else ranks_of(subject, world, folder)
        evidence = Evidence(single, legs, measured(single["straight"][0], single["moved"][0], subject.precision))
        stock = [with_layer(answer, subject, evidence, folder) for answer in answers(evidence)]
        is_apart = any(answer.verdict == "apart" for answer in stock)
        batch = [f"batch_size={size}", f"trainer.limit_train_batches={batches}", f"precision={subject.precision}"]
        differs = evidence.plain_draws or evidence.coupling.get("coupling") == "layer"
        runs = LockstepRuns([*words, *batch, *FIXED], code, folder, differs, progress)
        ours = [answer if is_apart else settled(answer, evidence) for answer in runs.answers(worlds, names)]
        found = (*(corrected(answer, ours) for answer in stock), *ours)
        report = Report(folder, f"{plan.model.name} on {plan.data.name}", subject.precision, found)
    progress.close()
    report.save()
    print(report.text(), flush=True)
    return report


def names_of(strategies: object, typed: Mapping[str, str]) -> list[str]:
    """Return the strategies of Lockstep's own runs, each with ranks."""
    for key in ("strategy", "engine"):
        require(key not in typed, key, typed.get(key), "a check has several", "strategies=ddp,fsdp, or nothing")
    for key in typed:
        if key not in KEYS and (alike := get_close_matches(key, KEYS, 1, 0.8)):
            raise config_error(key, typed[key], "a check has no such key", f"{alike[0]}={typed[key]}")
    names, choices = listed(strategies), [name for name, kind in STRATEGIES.items() if kind.distributed]
    for name in names:
        require(name in choices, "strategies", name, "it starts no ranks", f"strategies={','.join(choices)}")
    return names


def numbers(key: str, value: object) -> list[int]:
    """Return the whole numbers of a list, each at least 2."""
    words = listed(value)
    fits = bool(words) and all(word.isdigit() and int(word) >= 2 for word in words)
    require(fits, key, ",".join(words), "it takes whole numbers from 2 on", f"{key}={KEYS[key]}")
    return [*map(int, words)]


def listed(value: object) -> list[str]:
    """Return the words of a list: `2,3`, `[2,3]` or a sequence."""
    words = value if isinstance(value, list | tuple) else str(value).strip("[]").split(",")
    return [str(word).strip() for word in words]


def planned(words: Sequence[str], code: dict[str, Any], folder: Path) -> Plan:
    """Return the plan of a single process with the module and the data."""
    more, targets = words_of(code)
    typed = [*words, *more, "strategy=single", "logger=none"]
    with planning(typed):
        config, _ = compose_job(with_earlier_words(typed))
        with open_dict(config):
            config.update(targets)
        return plan_from(config, folder)


def divisible(size: int, worlds: Sequence[int]) -> int:
    """Return the batch size, or one near it, that all worlds and two accumulated halves divide."""
    unit = math.lcm(2, *worlds)
    return max(1, size // unit) * unit


def in_one_process(subject: Subject, folder: Path) -> tuple[Results, Subject]:
    """Return the legs of one process, in float32 if the module does not train in float64."""
    results = ranks_of(subject, 1, folder)
    if "error" in results.get("straight", results["plain"])[0]:
        subject = replace(subject, precision="32-true")
        results = ranks_of(subject, 1, folder)
    if not results["plain"][0].get("steps", True):
        raise ConfigError("model: no optimizer of it makes a step; call step() of self.optimizers().")
    for leg in ("plain", "straight", "moved"):
        if (reason := results[leg][0].get("error")) is not None:
            shown = results[leg][0].get("traceback", reason)
            raise UserCodeError(f"{shown}\nmodel: a stock Trainer cannot train it in one process.")
    return results, subject


def ranks_of(subject: Subject, world: int, folder: Path) -> Results:
    """Return all legs of a world, whose ranks are started once."""
    group = ProcessGroup("gloo" if world > 1 else "auto", PATIENCE)
    described = World("check", world > 1, world, 1, "cpu", False, 1, group, str(folder))
    try:
        return cast(Results, start_ranks(Legs(described, subject, str(folder)), LEGS))
    except RankFailed as error:
        return {"plain": [{"error": error.reason}]}


def answers(evidence: Evidence) -> list[Answer]:
    """Return the answers to all questions about a stock Trainer."""
    return [*layouts(evidence), *of_one_process(evidence)]


def with_layer(answer: Answer, subject: Subject, evidence: Evidence, folder: Path) -> Answer:
    """Run the step at which ranks part again, and add the first layer that does."""
    finding = answer.finding
    if finding is None or finding.step is None or answer.world == 1 or finding.quantity not in ("loss", "gradient"):
        return answer
    repeats = evidence.straight["facts"].get("repeats", {}) | ({"aligns": True} if finding.aligned else {})
    subject = replace(subject, layers_at=finding.step - 1, repeats=repeats)
    single, ranks = (ranks_of(subject, world, folder).get("layers", [{"error": ""}]) for world in (1, answer.world))
    if "error" in single[0] or any("error" in rank for rank in ranks):
        return answer
    return replace(answer, finding=replace(finding, where=first_layer(single[0], ranks)))


def corrected(answer: Answer, ours: Sequence[Answer]) -> Answer:
    """Mark what is apart in a stock Trainer and right in all of Lockstep's runs on as many ranks."""
    runs = [each for each in ours if each.world == answer.world]
    right = bool(runs) and all(each.verdict in ("identical", "within") for each in runs)
    by_virtual = answer.finding is not None and answer.finding.quantity in ("samples", "random", "validation", "rate")
    right = right and (by_virtual or any(each.question.endswith("one process") for each in runs))
    return replace(answer, corrected=right and answer.verdict == "apart" and answer.world > 1)


@contextmanager
def silent_ranks() -> Iterator[None]:
    """Start a fork server whose ranks print nothing, and end it afterwards; errors come another way."""
    kill_forkserver()
    sys.stdout.flush()
    stdout = os.dup(1)
    redirect_to_null(1)
    try:
        forkserver.start_forkserver(*ENGINES.values(), *EVERY_RUN, LEGS)
        forkserver.ensure_forkserver()
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
    try:
        yield
    finally:
        kill_forkserver()


class Progress:
    """A line on a terminal: which part runs, and how many there are."""

    def __init__(self, total: int) -> None:
        self.total, self.count = total, 0

    def __call__(self, what: str) -> None:
        self.count += 1
        if sys.stderr.isatty():
            print(
                f"\r\x1b[Kcheck {min(self.count, self.total)}/{self.total}: {what}", end="", file=sys.stderr, flush=True
            )

    def close(self) -> None:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
