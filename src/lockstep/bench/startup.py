"""Whole commands: how long until a line is fitted for two epochs, and what each further job of a sweep costs."""

import json
from functools import partial
from statistics import mean

from lockstep.bench.context import BenchContext
from lockstep.bench.measurement import Measurement, take_turns
from lockstep.conf import CONF
from lockstep.config_error import ConfigError

TRAIN = CONF.parent / "train.py"
SHORT = ("experiment=linear_regression", "max_epochs=2")
DDP = ("strategy=ddp", "devices=2", "accelerator=cpu")


def train(*overrides: str) -> tuple[str, ...]:
    if not TRAIN.is_file():
        raise ConfigError(f"{TRAIN}: the command is not there to be timed; write only=… with the other workloads.")
    return (str(TRAIN), *overrides)


def startup(context: BenchContext) -> list[Measurement]:
    """Beyond the import that any command of the engine has to do: a difference, not a ratio."""
    lightning, torch = "import lightning", "import torch"
    against = {
        "single": (lightning, None),
        "ddp 2": (lightning, 0.7),
        "ddp_spawn 2": (lightning, None),
        "raw ddp 2": (torch, 1.2),
    }
    variants = {
        **{name: partial(context.time_command, "-c", name) for name in (lightning, torch)},
        "single": partial(context.time_command, *train(*SHORT)),
        "ddp 2": partial(context.time_command, *train(*SHORT, *DDP)),
        "ddp_spawn 2": partial(context.time_command, *train(*SHORT, *DDP, "strategy=ddp_spawn")),
        "raw ddp 2": partial(context.time_command, *train(*SHORT, *DDP, "engine=raw")),
        "--help": partial(context.time_command, *train("--help")),
        "a wrong key": partial(context.time_command, *train("strategi=ddp"), status=2),
    }
    values = take_turns(variants, context.slow_rounds, context.report)
    found = [Measurement("startup", name, "s", values.pop(name)) for name in (lightning, torch)]
    imported = {row.variant: row.values for row in found}
    for name, (baseline, goal) in against.items():
        row = partial(Measurement, "startup", name, "s", values.pop(name), baseline, imported[baseline])
        found.append(row(by="difference", goal=goal))
    return [*found, *(Measurement("startup", name, "s", own, goal=1.0) for name, own in values.items())]


def sweep(context: BenchContext) -> list[Measurement]:
    """(wall clock of n jobs - of one) / (n - 1) - training of a job."""
    jobs, trained = context.pick(2, 5), []

    def time_sweep(count: int) -> float:
        with context.folder() as folder:
            seeds = ",".join(map(str, range(count)))
            words = train("-m", f"seed={seeds}", *SHORT, *DDP, f"hydra.sweep.dir={folder}/sweep")
            seconds = context.time_command(*words)
            found = [json.loads(path.read_text()) for path in folder.glob("sweep/*/metrics.json")]
            if count > 1:
                trained.append(mean(metrics["train_seconds"] for metrics in found))
            return seconds

    variants = {"1 job": partial(time_sweep, 1), f"{jobs} jobs": partial(time_sweep, jobs)}
    one, many = take_turns(variants, context.slow_rounds, context.report).values()
    rounds = zip(one, many, trained, strict=True)
    beyond = tuple((long - short) / (jobs - 1) - training for short, long, training in rounds)
    found = [Measurement("sweep", "1 job", "s", one), Measurement("sweep", f"{jobs} jobs", "s", many)]
    return [*found, Measurement("sweep", "further job - training", "s", beyond, goal=0.6)]
