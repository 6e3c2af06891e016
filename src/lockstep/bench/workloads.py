"""The workloads, by name: the table of the bench. Training workloads are rows of TRAINING; the others are functions."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from statistics import mean

from lockstep.bench.context import STOCK, STRANGERS, BenchContext
from lockstep.bench.measurement import Measurement, take_turns
from lockstep.conf import CONF
from lockstep.config_error import ConfigError
from lockstep.schemas.engine import ENGINES

MODULE = ("model=linear", f"++model._target_={STRANGERS}.Module", "data=model", f"+data._target_={STRANGERS}.Data")
DIGITS = ("data=digits", "accelerator=cpu", "strategy=ddp")
RANKS = (1, 2, 4, 8)
TRAIN = CONF.parent / "train.py"
SHORT = ("experiment=linear_regression", "max_epochs=2")
DDP = ("strategy=ddp", "devices=2", "accelerator=cpu")
BF16 = "precision=bf16-mixed"


@dataclass(frozen=True)
class Variant:
    """A baseline loop, or an engine with `overrides`; `goals` are ratios to other variants, by their names.

    A ratio whose goal is None is shown and not judged.
    """

    baseline: str | None = None
    overrides: tuple[str, ...] = ()
    goals: Mapping[str, float | None] = field(default_factory=dict)


def engine(name: str, *overrides: str, **goals: float | None) -> Variant:
    return Variant(None, (f"engine={name}", *overrides), goals)


TRAINING: dict[str, dict[str, Variant]] = {
    "linear": {
        "source": Variant("source"),
        "bare": Variant("bare", goals={"source": None}),
        "raw": engine("raw", source=0.6),
        "lightning": engine("lightning", source=1.0),
    },
    "mlp": {
        "bare": Variant("bare"),
        "source": Variant("source", goals={"bare": None}),
        "raw": engine("raw", bare=1.1),
        "lightning": engine("lightning", bare=1.3),
    },
    "cnn": {
        "source": Variant("source"),
        "raw": engine("raw", source=0.65),
        "lightning": engine("lightning", source=0.65, raw=1.03),
        "raw bf16": engine("raw", BF16, source=0.26),
        "lightning bf16": engine("lightning", BF16, **{"source": 0.26, "raw bf16": 1.03}),
    },
    "module": {
        "stock": Variant(STOCK),
        "raw": engine("raw", stock=0.7),
        "lightning": engine("lightning", stock=1.0),
    },
    "threads": {
        "lightning": engine("lightning", "threads=2"),
        "lightning ddp 2": engine("lightning", "threads=1", "strategy=ddp", "devices=2", lightning=1.05),
        "raw": engine("raw", "threads=2"),
        "raw ddp 2": engine("raw", "threads=1", "strategy=ddp", "devices=2", raw=1.05),
    },
}
"""The variants of each training workload."""


def training_seconds(variant: Variant, shared: tuple[str, ...], context: BenchContext) -> float:
    overrides = (*shared, "test=false", *variant.overrides)
    if variant.baseline is not None:
        return context.time_baseline(variant.baseline, *overrides)
    return float(context.train(*overrides)["train_seconds"])


def measure_training(
    workload: str, variants: Mapping[str, Variant], shared: tuple[str, ...], rounds: int, context: BenchContext
) -> list[Measurement]:
    """Return a row for each variant and each of its goals, or one for a variant without."""
    calls = {name: partial(training_seconds, variant, shared, context) for name, variant in variants.items()}
    first = next(iter(calls))
    context.report(f"{first}, not counted: the first run finds files and memory cold")
    calls[first]()
    values = take_turns(calls, rounds, context.report)
    rows = []
    for name, variant in variants.items():
        row = partial(Measurement, workload, name, "s", values[name])
        rows += [row(other, values[other], goal=goal) for other, goal in variant.goals.items()] or [row()]
    return rows


def measure_table(
    workload: str, shared: Callable[[BenchContext], tuple[str, ...]], context: BenchContext
) -> list[Measurement]:
    rounds = context.slow_rounds if workload == "threads" else context.rounds
    return measure_training(workload, TRAINING[workload], shared(context), rounds, context)


def mlp(context: BenchContext) -> tuple[str, ...]:
    subset = ("data.samples=20000", "data.val_size=0") if context.quick else ()
    return ("data=mnist", context.mnist(), *subset, "model=mlp", "batch_size=128", "max_epochs=1")


def cnn(context: BenchContext) -> tuple[str, ...]:
    """Train on a subset: a whole epoch by the sources' loop takes minutes."""
    samples = f"data.samples={2000 if context.quick else 20_000}"
    return ("experiment=mnist_cnn", context.mnist(), samples, "max_epochs=1", "batch_size=2000")


def module(context: BenchContext) -> list[Measurement]:
    """A user's LightningModule by both engines and by Lightning's own Trainer, its data in each of three forms."""
    samples = f"+data.samples={6400 if context.quick else 25_600}"
    rows = []
    for name, tensors, workers in (("tensors", "true", 0), ("samples", "false", 0), ("workers", "false", 2)):
        data = (samples, f"+data.tensors={tensors}", f"+data.workers={workers}")
        shared = (*MODULE, *data, "max_epochs=2", "threads=1")
        rows += measure_training(f"module {name}", TRAINING["module"], shared, context.rounds, context)
    return rows


def threads(context: BenchContext) -> tuple[str, ...]:
    """Train on the same two cores, as two threads of one process and as two ranks of one thread."""
    return (*cnn(context)[:-1], f"batch_size={1000 if context.quick else 2000}", "accelerator=cpu")


def monitoring(context: BenchContext) -> list[Measurement]:
    """What TensorBoard takes of an epoch, as it is by default: the seconds of a run beside those without its own."""
    subset = ("data.samples=20000",) if context.quick else ()
    data = ("data=mnist", context.mnist(), *subset)
    shared = (*data, "model=mlp", "batch_size=128", "max_epochs=10", "test=false", "threads=1")
    rows = []
    for name in ENGINES:
        seconds = []
        for number in range(1, context.rounds + 1):
            context.report(f"round {number}/{context.rounds}, {name}")
            seconds.append(context.probe("monitoring", name, *shared))
        total = tuple(run for run, _ in seconds)
        rest = tuple(run - watching for run, watching in seconds)
        rows.append(Measurement("monitoring", name, "s", total, "without", rest, goal=1.02))
    return rows


def scaling(context: BenchContext) -> list[Measurement]:
    """A thread a rank, an MLP on digits by the raw engine."""

    def throughput(ranks: int) -> float:
        world = ("engine=raw", f"devices={ranks}", "threads=1")
        overrides = (*DIGITS, *world, "data.val_size=0", "batch_size=256", "max_epochs=10", "test=false")
        return float(context.train(*overrides)["samples_per_second"])

    variants = {f"ranks: {ranks}": partial(throughput, ranks) for ranks in RANKS}
    values = take_turns(variants, context.slow_rounds, context.report)
    first = next(iter(values))
    return [Measurement("scaling", name, "samples/s", values[name], first, values[first]) for name in values]


def collectives(context: BenchContext) -> list[Measurement]:
    """What a step and an epoch add: runs of few and many steps, of one epoch and of two, told apart by subtraction.

    The gradients of this MLP fit in one bucket, so a step needs one all-reduce.
    """

    def count(engine: str, epochs: int, batch_size: int) -> tuple[float, ...]:
        """Return the all-reduces, other collectives and steps of a run."""
        context.report(f"{engine}, epochs: {epochs}, batch size: {batch_size}")
        shared = (*DIGITS, "devices=2", "model=mlp", "logger=none", "test=false")
        return context.probe("collectives", engine, *shared, f"max_epochs={epochs}", f"batch_size={batch_size}")

    rows = []
    for name in ENGINES:
        few, few_others, few_steps = count(name, 1, 320)
        many, _, many_steps = count(name, 1, 160)
        twice, twice_others, _ = count(name, 2, 320)
        step = (many - few) / (many_steps - few_steps)
        row = partial(Measurement, "collectives", unit="calls")
        rows += [
            row(f"{name}, all-reduces per step", values=(step,), goal=1.0),
            row(f"{name}, all-reduces per epoch", values=(twice - few - step * few_steps,), goal=1.0),
            row(f"{name}, others per epoch", values=(float(twice_others - few_others),)),
        ]
    return rows


def train(*overrides: str) -> tuple[str, ...]:
    if not TRAIN.is_file():
        raise ConfigError(f"{TRAIN}: the command is not there to be timed; write only=… with the other workloads.")
    return (str(TRAIN), *overrides)


def startup(context: BenchContext) -> list[Measurement]:
    """Beyond the import that any command of the engine has to do: a difference, not a ratio."""
    lightning, torch = "import lightning", "import torch"
    commands = {
        "single": (train(*SHORT), lightning, None),
        "ddp 2": (train(*SHORT, *DDP), lightning, 0.7),
        "ddp_spawn 2": (train(*SHORT, *DDP, "strategy=ddp_spawn"), lightning, None),
        "raw ddp 2": (train(*SHORT, *DDP, "engine=raw"), torch, 1.2),
    }
    variants = {
        **{name: partial(context.time_command, "-c", name) for name in (lightning, torch)},
        **{name: partial(context.time_command, *words) for name, (words, _, _) in commands.items()},
        "--help": partial(context.time_command, *train("--help")),
        "a wrong key": partial(context.time_command, *train("strategi=ddp"), status=2),
    }
    values = take_turns(variants, context.slow_rounds, context.report)
    row = partial(Measurement, "startup", unit="s")
    return [
        *(row(name, values=values[name]) for name in (lightning, torch)),
        *(
            row(name, values=values[name], baseline=base, baseline_values=values[base], by="difference", goal=goal)
            for name, (_, base, goal) in commands.items()
        ),
        *(row(name, values=values[name], goal=1.0) for name in ("--help", "a wrong key")),
    ]


def sweep(context: BenchContext) -> list[Measurement]:
    """(wall clock of n jobs - of one) / (n - 1) - training of a job."""
    jobs, trained = 2 if context.quick else 5, []

    def time_sweep(count: int) -> float:
        with context.folder() as folder:
            seeds = ",".join(map(str, range(count)))
            words = train("-m", f"seed={seeds}", *SHORT, *DDP, f"hydra.sweep.dir={folder}/sweep")
            seconds = context.time_command(*words)
            metrics = [json.loads(path.read_text()) for path in folder.glob("sweep/*/metrics.json")]
            if count > 1:
                trained.append(mean(job["train_seconds"] for job in metrics))
            return seconds

    variants = {"1 job": partial(time_sweep, 1), f"{jobs} jobs": partial(time_sweep, jobs)}
    one, many = take_turns(variants, context.slow_rounds, context.report).values()
    rounds = zip(one, many, trained, strict=True)
    beyond = tuple((long - short) / (jobs - 1) - training for short, long, training in rounds)
    rows = [Measurement("sweep", "1 job", "s", one), Measurement("sweep", f"{jobs} jobs", "s", many)]
    return [*rows, Measurement("sweep", "further job - training", "s", beyond, goal=0.6)]


WORKLOADS: dict[str, Callable[[BenchContext], list[Measurement]]] = {
    "linear": partial(measure_table, "linear", lambda _context: ("experiment=linear_regression",)),
    "mlp": partial(measure_table, "mlp", mlp),
    "cnn": partial(measure_table, "cnn", cnn),
    "module": module,
    "monitoring": monitoring,
    "threads": partial(measure_table, "threads", threads),
    "scaling": scaling,
    "collectives": collectives,
    "startup": startup,
    "sweep": sweep,
}
ON_MNIST = {"mlp", "cnn", "threads", "monitoring"}
