"""Whole commands: how long until S2 has been trained for two epochs, and what each further job of a sweep costs."""

import json
from collections.abc import Callable
from functools import partial
from statistics import mean

from lockstep.bench.row import Goal, Row, alternated
from lockstep.bench.setting import TRAIN, Setting
from lockstep.config_error import ConfigError

SHORT = ("experiment=linear_regression", "max_epochs=2")
TWO = ("strategy=ddp", "devices=2", "accelerator=cpu")
IMPORT = "import lightning"


def train(*overrides: str) -> tuple[str, ...]:
    if not TRAIN.is_file():
        raise ConfigError(f"{TRAIN}: the command is not there to be timed; write only=… with the other workloads.")
    return (str(TRAIN), *overrides)


def startup(setting: Setting) -> list[Row]:
    """Beyond importing Lightning, which any command that uses it has to do: a difference, not a ratio."""

    def whole(*words: str, status: int = 0) -> Callable[[], float]:
        return lambda: setting.command(*words, status=status)[0]

    ways = {
        IMPORT: whole("-c", IMPORT),
        "single": whole(*train(*SHORT)),
        "ddp 2": whole(*train(*SHORT, *TWO)),
        "ddp_spawn 2": whole(*train(*SHORT, *TWO, "strategy=ddp_spawn")),
        "--help": whole(*train("--help")),
        "a wrong key": whole(*train("strategi=ddp"), status=2),
    }
    values = alternated(ways, setting.dear_rounds, setting.say)
    imported = values.pop(IMPORT)
    found = [Row("startup", IMPORT, "s", imported)]
    for name in ("single", "ddp 2", "ddp_spawn 2"):
        goal = Goal(1.5) if name == "ddp 2" else None
        found.append(Row("startup", name, "s", values.pop(name), IMPORT, imported, by="difference", goal=goal))
    return [*found, *(Row("startup", name, "s", own, goal=Goal(1.0)) for name, own in values.items())]


def sweep(setting: Setting) -> list[Row]:
    """(wall clock of n jobs - of one) / (n - 1) - training of a job."""
    jobs, trained = setting.pick(2, 5), []

    def swept(count: int) -> float:
        with setting.folder() as folder:
            seeds = ",".join(map(str, range(count)))
            words = train("-m", f"seed={seeds}", *SHORT, *TWO, f"hydra.sweep.dir={folder}/sweep")
            seconds, _ = setting.command(*words)
            found = [json.loads(path.read_text()) for path in folder.glob("sweep/*/metrics.json")]
            if count > 1:
                trained.append(mean(metrics["train_seconds"] for metrics in found))
            return seconds

    counts = {"1 job": 1, f"{jobs} jobs": jobs}
    calls = {name: partial(swept, count) for name, count in counts.items()}
    one, many = alternated(calls, setting.dear_rounds, setting.say).values()
    rounds = zip(one, many, trained, strict=True)
    beyond = tuple((long - short) / (jobs - 1) - training for short, long, training in rounds)
    found = [Row("sweep", "1 job", "s", one), Row("sweep", f"{jobs} jobs", "s", many)]
    return [*found, Row("sweep", "further job - training", "s", beyond, goal=Goal(1.2))]
