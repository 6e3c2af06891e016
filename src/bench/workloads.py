"""The workloads, by name: those that only train are a table of variants, the others are functions.

A run is measured by its metrics, by a module on its ranks, or by the time of a whole command.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import sub
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from lockstep.base.config_error import ConfigError
from lockstep.command.build import plan_from
from lockstep.command.compose import compose_job
from lockstep.command.job import run
from lockstep.launch.start import start_ranks
from lockstep.plan.plan import Plan
from lockstep.plan.world import World

BASELINES = {"source": "bench.baselines", "bare": "bench.baselines", "stock": "bench.lightning_baseline"}
"""The module of each baseline, which ranks run; `stock` is Lightning's own Trainer."""


@dataclass(frozen=True)
class BenchPayload:
    """A plan to run, and the name of the baseline that runs it."""

    world: World
    plan: Plan
    subject: str


@dataclass(frozen=True)
class BenchContext:
    """How thoroughly to measure; MNIST is below `root`, runs write into `scratch`, `title` begins each message."""

    quick: bool
    root: str
    scratch: Path
    title: str = "bench"

    def report(self, step: str) -> None:
        print(f"{self.title}, {step}", flush=True)

    def train_seconds(self, engine: str, *overrides: str) -> float:
        """Return the seconds of training in a run by an engine, or by the baseline of this name in a like process."""
        with TemporaryDirectory(dir=self.scratch, ignore_cleanup_errors=True) as folder:
            if engine not in BASELINES:
                return float(run([f"engine={engine}", *overrides, f"hydra.run.dir={folder}"])["train_seconds"])
            plan = plan_from(compose_job([*overrides])[0], Path(folder))
            return float(start_ranks(BenchPayload(plan.world, plan, engine), BASELINES[engine]))

    def time_command(self, *words: str, status: int = 0) -> float:
        """Return the seconds of a whole command; raise ConfigError if it exits with another status."""
        began = time.perf_counter()
        command, folder = [sys.executable, *words], self.scratch
        process = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        seconds = time.perf_counter() - began
        if process.returncode != status:
            last = process.stderr.strip().rpartition("\n")[2]
            raise ConfigError(f"python {' '.join(words)}: exited with status {process.returncode}; last line: {last}")
        return seconds


Row = dict[str, object]  # of the table and of bench.csv, by their headings
LONG_ENOUGH = 0.3  # seconds that each timing of a ratio must last: one-off costs are part of it
INCONCLUSIVE = "inconclusive"


def measurement(
    workload: str,
    variant: str,
    values: Sequence[float],
    baseline: str = "",
    baseline_values: Sequence[float] = (),
    goal: float | None = None,
) -> Row:
    """Return a row of the table: the seconds of a variant, and their ratio to the baseline in each round, if any.

    The goal is of the ratio, or of the seconds without a baseline. `met`: yes, no, inconclusive (a short timing, or
    rounds on both sides of the goal), or empty without a goal.
    """
    ratios = [value / base for value, base in zip(values, baseline_values, strict=True)] if baseline else []
    rounds = {goal is None or value <= goal for value in ratios or values}
    too_short = bool(ratios) and min(*values, *baseline_values) < LONG_ENOUGH
    met = INCONCLUSIVE if too_short or len(rounds) > 1 else "yes" if rounds == {True} else "no"
    return {
        "workload": workload,
        "variant": variant,
        "median": median(values),
        "min": min(values),
        "max": max(values),
        "against": baseline,
        "ratio": median(ratios) if ratios else None,
        "ratio_min": min(ratios, default=None),
        "ratio_max": max(ratios, default=None),
        "goal": goal,
        "met": "" if goal is None else met,
    }


TRAIN = str(Path(__file__).parents[2] / "train.py")
USER_CODE = ("model=example_module", "~model.net", "~model.optimizer", "~model.gamma", "data=none")
MODULE, BORING, MLP = (f"model._target_={BASELINES['stock']}.{name}" for name in ("Module", "Boring", "MLP"))
SHORT = ("experiment=linear_regression", "max_epochs=2")
DDP = ("strategy=ddp", "devices=2", "accelerator=cpu")
WRONG_KEY = "a wrong key"
Goals = Mapping[str, float | None]  # the largest ratio to each of the named variants; None: any


class Variant(NamedTuple):
    """A run by an engine or a baseline; `goals`: of its ratios to other variants."""

    engine: str
    goals: Goals = {}  # noqa: RUF012  # a Mapping
    overrides: tuple[str, ...] = ()


class Training(NamedTuple):
    """Variants of the same work, whose seconds of training are compared; `full` or `quick` says how much of it."""

    variants: Mapping[str, Variant]
    overrides: tuple[str, ...]
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    rounds: int = 3

    def measure(self, name: str, context: BenchContext) -> list[Row]:
        words = (*self.overrides, *(self.quick if context.quick else self.full), "test=false")
        shared = [word.format(root=context.root) for word in words]
        calls = {
            variant: partial(context.train_seconds, engine, *shared, *overrides)
            for variant, (engine, _, overrides) in self.variants.items()
        }
        context.report("not counted: the first run finds files and memory cold")
        next(iter(calls.values()))()
        values = take_turns(calls, context, self.rounds)
        return [
            measurement(name, variant, values[variant], baseline, values.get(baseline, ()), goal)
            for variant, (_, goals, _) in self.variants.items()
            for baseline, goal in (goals or {"": None}).items()
        ]


def take_turns(
    calls: Mapping[str, Callable[[], float]], context: BenchContext, rounds: int = 3
) -> dict[str, tuple[float, ...]]:
    """Return the seconds of each variant in each round: a slower machine slows all of them."""
    rounds = 2 if context.quick else rounds
    values: dict[str, tuple[float, ...]] = dict.fromkeys(calls, ())
    for number in range(1, rounds + 1):
        for name, measure in calls.items():
            context.report(f"round {number}/{rounds}, {name}")
            values[name] += (measure(),)
    return values


def beside_stock(goal: float, form: str = "", *overrides: str) -> dict[str, Variant]:
    """Return Lightning's own Trainer and ours, with its largest ratio to it."""
    return {
        f"stock{form}": Variant("stock", {}, overrides),
        f"lightning{form}": Variant("lightning", {f"stock{form}": goal}, overrides),
    }


EPOCHS = ("max_epochs=2",), ("max_epochs=1",)
TRAINING = {
    "linear": Training(
        {
            "source": Variant("source"),
            "bare": Variant("bare", {"source": None}),
            "lightning": Variant("lightning", {"source": 1.0}),
        },
        ("experiment=linear_regression",),
    ),
    "mlp": Training(
        {
            "bare": Variant("bare"),
            "source": Variant("source", {"bare": None}),
            "lightning": Variant("lightning", {"bare": 1.3}),
        },
        ("data.root='{root}'", "data=mnist", "model=mlp", "batch_size=128", "max_epochs=1"),
        quick=("+data.samples=20000", "data.val_size=0"),
    ),
    "cnn": Training(  # on a subset: a whole epoch by the sources' loop takes minutes
        {
            "source": Variant("source"),
            "lightning": Variant("lightning", {"source": 0.65}),
            "lightning bf16": Variant("lightning", {"source": 0.26}, ("precision=bf16-mixed",)),
        },
        ("data.root='{root}'", "experiment=mnist_cnn", "max_epochs=1", "batch_size=2000"),
        full=("+data.samples=20000",),
        quick=("+data.samples=2000",),
    ),
    "module": Training(
        {
            **beside_stock(1.0, ", tensors", "+model.tensors=true"),
            **beside_stock(1.0, ", samples", "+model.tensors=false"),
            **beside_stock(1.0, ", workers", "+model.tensors=false", "+model.workers=2"),
        },
        (*USER_CODE, MODULE, "max_epochs=2", "threads=1"),
        full=("+model.samples=25600",),
        quick=("+model.samples=6400",),
    ),
    "boring": Training(beside_stock(0.5), (*USER_CODE, BORING, "threads=1"), *EPOCHS, rounds=5),
    "module_mlp": Training(beside_stock(0.6), (*USER_CODE, MLP, "threads=1"), *EPOCHS, rounds=5),
}


STARTUP: dict[str, tuple[tuple[str, ...], Goals]] = {
    "import lightning": (("-c", "import lightning"), {"": None}),
    "single": ((TRAIN, *SHORT), {"": None, "import lightning": None}),
    "ddp 2": ((TRAIN, *SHORT, *DDP), {"": None, "import lightning": 0.7}),
    "ddp_spawn 2": ((TRAIN, *SHORT, *DDP, "strategy=ddp_spawn"), {"": None, "import lightning": None}),
    "--help": ((TRAIN, "--help"), {"": 1.0}),
    WRONG_KEY: ((TRAIN, "strategi=ddp"), {"": 1.0}),
}
"""Arguments of `python`, and the goals: for all seconds, and for those beyond the import that the command needs."""


def startup(context: BenchContext) -> list[Row]:
    """Time whole commands, and what they take beyond the import in the same round."""
    calls = {
        name: partial(context.time_command, *words, status=2 if name == WRONG_KEY else 0)
        for name, (words, _) in STARTUP.items()
    }
    values = take_turns(calls, context)
    rows = []
    for name, (_, goals) in STARTUP.items():
        for baseline, goal in goals.items():
            seconds = tuple(map(sub, values[name], values[baseline])) if baseline else values[name]
            rows.append(measurement("startup", f"{name} - {baseline}" if baseline else name, seconds, goal=goal))
    return rows


def sweep(context: BenchContext) -> list[Row]:
    """Time a further job, without its training: (wall clock of n jobs - of one) / (n - 1)."""
    jobs = 2 if context.quick else 5

    def time_sweep(count: int) -> float:
        with TemporaryDirectory(dir=context.scratch) as folder:
            seeds = ",".join(map(str, range(count)))
            seconds = context.time_command(
                TRAIN, "-m", f"seed={seeds}", *SHORT, *DDP, f"hydra.sweep.dir={folder}/sweep"
            )
            metrics = [json.loads(path.read_text()) for path in Path(folder).glob("sweep/*/metrics.json")]
            return seconds - sum(float(job["train_seconds"]) for job in metrics)

    name = "further job - training"
    values = take_turns({name: lambda: (time_sweep(jobs) - time_sweep(1)) / (jobs - 1)}, context)
    return [measurement("sweep", name, values[name], goal=0.6)]


WORKLOADS: dict[str, Callable[[BenchContext], list[Row]]] = {
    **{name: partial(training.measure, name) for name, training in TRAINING.items()},
    "startup": startup,
    "sweep": sweep,
}
HELP = """
  linear         linear regression, batch 32, 10 epochs: the source's loop, a bare loop over tensors, Lightning
  mlp            an MLP on MNIST, batch 128, one epoch: the same
  cnn            SimpleCNN on MNIST, batch 2000: the source's loop, Lightning, also in bf16
  module         a user's LightningModule, 2 epochs: Lightning's own Trainer, and ours; three forms of data
  boring         a LightningModule of one small layer, 3,000 steps of 8 an epoch: Lightning's own Trainer, and ours
  module_mlp     a LightningModule of the size of an MLP on MNIST, 860 steps of 64 an epoch: the same
  startup        whole commands, beyond importing Lightning: single, ddp, ddp_spawn; --help; a wrong key
  sweep          what a further job costs beyond its training
"""
