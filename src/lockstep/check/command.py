"""One check, from overrides to check.json: a stock Trainer's trainings, their verdicts, and Lockstep's own runs."""

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

from lockstep.base.config_error import ConfigError, config_error, option_error, require
from lockstep.base.private_api.cpython import kill_forkserver
from lockstep.base.streams import redirect_to_null
from lockstep.check.comparison import VAL_BATCHES, Results, Subject, measured
from lockstep.check.lockstep_runs import LockstepRuns, corrected, settled
from lockstep.check.questions import Evidence
from lockstep.check.ranks import answers
from lockstep.check.report import ALONE, MODULE, ON_RANKS, Answer, Progress, Report
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

TRAININGS = "lockstep.check.trainings"
KEYS = {"devices": "2", "strategies": "ddp", "steps": "20"}
PATIENCE = 60
"""Seconds that a rank waits for the others: one that fails alone leaves them in a collective."""
FIXED = [
    *("max_epochs=2", f"trainer.limit_val_batches={VAL_BATCHES}", "logger=none", "test=false", "record.weights=step"),
    f"process_group.timeout={PATIENCE}",
]
"""Overrides of Lockstep's own runs."""
HANGS = "waits for the other ranks"
"""In a cause that the source shows: ranks are not started."""
SMALLEST = 8
"""Samples of a batch, below which slow trainings have fewer steps instead."""


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
    words = [*(word for word in overrides if key_of(word) not in KEYS), "accelerator=cpu"]
    code = {name: value for name, value in (("model", model), ("data", data)) if value is not None}
    worlds = numbers("devices", typed.get("devices", devices))
    step_count, *more = numbers("steps", typed.get("steps", steps))
    require(not more, "steps", typed.get("steps", steps), "it takes one number", "steps=20")
    names = names_of(typed.get("strategies", strategies), typed)
    report, progress = Report(folder), Progress(worlds, names)
    try:
        with silent_ranks():
            progress.begin(MODULE)
            plan = planned(words, code, folder)
            make_output_dir(folder)
            report.title = f"{plan.model.name} on {plan.data.name}"
            progress.begin(ALONE)
            evidence, subject = in_one_process(plan, max(1, step_count // 2), math.lcm(2, *worlds), report)
            report.answers = progress.show(answers(evidence))
            hangs = [each.finding.cause for each in report.answers if each.finding and HANGS in each.finding.cause]
            for world in worlds:
                progress.begin(ON_RANKS.format(world))
                failure = [{"error": cause, "reason": f"ranks are not started: {cause}"} for cause in hangs]
                evidence.worlds[world] = {"plain": failure} if failure else traces_of(subject, world, folder)
                report.answers = progress.show(answers(evidence))
            runs = LockstepRuns([*words, *FIXED], code, folder / "lockstep", evidence, subject, progress.begin)
            known, ours = report.answers, list[Answer]()
            for answer in runs.answers(worlds, names) if not hangs else ():
                ours.append(settled(answer, evidence, known))
                report.answers = progress.show([*known, *ours])
            report.answers = [*(corrected(answer, ours) for answer in known), *ours]
    except (KeyboardInterrupt, SystemExit):
        report.left = progress.left
        raise
    finally:
        report.end()
    return report


def names_of(strategies: object, typed: Mapping[str, str]) -> list[str]:
    """Return the strategies of Lockstep's own runs, each with ranks."""
    for key in ("strategy", "engine"):
        require(key not in typed, key, typed.get(key), "a check has several", "strategies=ddp,fsdp, or nothing")
    accelerator, reason = typed.get("accelerator", "cpu"), "a check computes on the CPU"
    require(accelerator in ("cpu", "auto"), "accelerator", accelerator, reason, "accelerator=cpu")
    for key in typed:
        if key not in KEYS and (alike := get_close_matches(key, KEYS, 1, 0.8)):
            raise config_error(key, typed[key], "a check has no such key", f"{alike[0]}={typed[key]}")
    names, choices = listed(strategies), [name for name, kind in STRATEGIES.items() if kind.distributed]
    for name in names:
        if name not in STRATEGIES:
            raise option_error("strategies", name, "there is no such strategy", choices)
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
    typed = [*words, *more, "strategy=single", "strategy.in_process=false", "logger=none"]
    with planning(typed):
        config, _ = compose_job(with_earlier_words(typed))
        with open_dict(config):
            config.update(targets)
        return plan_from(config, folder)


def divisible(size: float, unit: int) -> int:
    """Return the batch size, or one near it, that all worlds and two accumulated halves divide."""
    return max(1, int(size) // unit) * unit


def in_one_process(plan: Plan, batches: int, unit: int, report: Report) -> tuple[Evidence, Subject]:
    """Return what one process has computed; in float32 if the module does not train in float64.

    Batches are smaller, and then steps fewer, if training would take longer than the budget.
    """
    size, folder = divisible(plan.batch_size, unit), Path(plan.run_dir)
    subject = Subject(plan.model.call, plan.data.call, size, batches, plan.seed, sync_batchnorm=plan.sync_batchnorm)
    while True:
        results = traces_of(subject, 1, folder)
        plain = results["plain"][0]
        if share := plain.get("share"):
            smaller = divisible(max(subject.batch_size * share, SMALLEST), unit)
            if smaller < subject.batch_size:
                subject = replace(subject, batch_size=smaller)
            else:
                subject = replace(subject, batches=max(2, int(subject.batches * share)), budget=math.inf)
        elif "error" in results.get("straight", [plain])[0] and subject.precision == "64-true":
            subject = replace(subject, precision="32-true")
        else:
            break
    if not plain.get("steps", True):
        raise ConfigError("model: no optimizer of it makes a step; call step() of self.optimizers().")
    for training in ("plain", "straight", "moved"):
        if (reason := results[training][0].get("error")) is not None:
            shown = results[training][0].get("traceback", reason)
            raise UserCodeError(f"{shown}\nmodel: a stock Trainer cannot train it in one process.")
    straight = results["straight"][0]
    report.precision = f"{subject.precision}, {len(straight['steps'])} steps of {subject.batch_size} samples"
    if (subject.batch_size, subject.batches) != (size, batches):
        report.precision += f", in place of {batches * 2} of {size}, as the module is slow"
    return Evidence(results, {}, measured(straight, results["moved"][0], subject.precision)), subject


def traces_of(subject: Subject, world: int, folder: Path) -> Results:
    """Return the traces of all trainings of a world, whose ranks are started once."""
    group = ProcessGroup("gloo" if world > 1 else "auto", float(PATIENCE))
    described = World("check", world > 1, world, 1, "cpu", False, 1, group, str(folder))
    try:
        return cast(Results, start_ranks(cast(Any, replace(subject, world=described)), TRAININGS))
    except RankFailed as error:
        return {"plain": [{"error": error.reason}]}


@contextmanager
def silent_ranks() -> Iterator[None]:
    """Start a fork server whose ranks print nothing, and end it afterwards; errors come another way."""
    kill_forkserver()
    sys.stdout.flush()
    streams = [os.dup(1), os.dup(2)]
    try:
        redirect_to_null(1)
        redirect_to_null(2)
        forkserver.start_forkserver(*ENGINES.values(), *EVERY_RUN, TRAININGS)
        forkserver.ensure_forkserver()
    finally:
        for number, stream in enumerate(streams, 1):
            os.dup2(stream, number)
            os.close(stream)
    try:
        yield
    finally:
        kill_forkserver()
