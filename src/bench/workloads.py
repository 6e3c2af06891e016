"""The workloads, by name: those that only train are a table of variants, the others are functions."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from operator import sub
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.runs import BASELINES, BenchContext, Measurement

TRAIN = str(Path(__file__).parents[2] / "train.py")
USER_CODE = ("model=example_module", "~model.net", "~model.optimizer", "~model.gamma", "data=none")
MODULE, BORING, MLP = (f"model._target_={BASELINES['stock']}.{name}" for name in ("Module", "Boring", "MLP"))
SHORT = ("experiment=linear_regression", "max_epochs=2")
DDP = ("strategy=ddp", "devices=2", "accelerator=cpu")
WRONG_KEY = "a wrong key"
Goals = Mapping[str, float | None]  # the largest ratio to each of the named variants; None: any


class Variant(NamedTuple):
    """A run by an engine or a baseline; `goals` bound its ratios to other variants (None: shown, not judged)."""

    engine: str
    goals: Goals = {}  # noqa: RUF012  # a Mapping
    overrides: tuple[str, ...] = ()


class Training(NamedTuple):
    """Variants of the same work, whose seconds of training are compared; `full` or `quick` says how much of it.

    `rounds`: in which the variants take turns; 2 of a quick benchmark.
    """

    variants: Mapping[str, Variant]
    overrides: tuple[str, ...]
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    rounds: int = 3

    def measure(self, name: str, context: BenchContext) -> list[Measurement]:
        words = (*self.overrides, *(self.quick if context.quick else self.full), "test=false")
        shared = [word.format(root=context.root) for word in words]
        calls = {
            variant: partial(context.train_seconds, engine, *shared, *overrides)
            for variant, (engine, _, overrides) in self.variants.items()
        }
        first = next(iter(calls))
        context.report(f"{first}, not counted: the first run finds files and memory cold")
        calls[first]()
        values = take_turns(calls, context, self.rounds)
        return [
            Measurement(name, variant, values[variant], baseline, values.get(baseline, ()), goal)
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


FORMS = {"tensors": ("true", 0), "samples": ("false", 0), "workers": ("false", 2)}
TRAINING = {
    "linear": Training(
        {
            "source": Variant("source"),
            "bare": Variant("bare", {"source": None}),
            "raw": Variant("raw", {"source": 0.6}),
            "lightning": Variant("lightning", {"source": 1.0}),
        },
        ("experiment=linear_regression",),
    ),
    "mlp": Training(
        {
            "bare": Variant("bare"),
            "source": Variant("source", {"bare": None}),
            "raw": Variant("raw", {"bare": 1.1}),
            "lightning": Variant("lightning", {"bare": 1.3}),
        },
        ("data.root='{root}'", "data=mnist", "model=mlp", "batch_size=128", "max_epochs=1"),
        quick=("+data.samples=20000", "data.val_size=0"),
    ),
    "cnn": Training(  # on a subset: a whole epoch by the sources' loop takes minutes
        {
            "source": Variant("source"),
            "raw": Variant("raw", {"source": 0.65}),
            "lightning": Variant("lightning", {"source": 0.65, "raw": 1.03}),
            "raw bf16": Variant("raw", {"source": 0.26}, ("precision=bf16-mixed",)),
            "lightning bf16": Variant("lightning", {"source": 0.26, "raw bf16": 1.03}, ("precision=bf16-mixed",)),
        },
        ("data.root='{root}'", "experiment=mnist_cnn", "max_epochs=1", "batch_size=2000"),
        full=("+data.samples=20000",),
        quick=("+data.samples=2000",),
    ),
    "module": Training(
        {
            f"{engine}, {form}": Variant(
                engine,
                {f"stock, {form}": goal} if goal else {},
                (f"+model.tensors={tensors}", f"+model.workers={workers}"),
            )
            for form, (tensors, workers) in FORMS.items()
            for engine, goal in {"stock": None, "raw": 0.7, "lightning": 1.0}.items()
        },
        (*USER_CODE, MODULE, "max_epochs=2", "threads=1"),
        full=("+model.samples=25600",),
        quick=("+model.samples=6400",),
    ),
    **{
        name: Training(
            {
                "stock": Variant("stock"),
                "raw": Variant("raw", {"stock": raw_goal}),
                "lightning": Variant("lightning", {"stock": lightning_goal}),
            },
            (*USER_CODE, target, "threads=1"),
            full=("max_epochs=2",),
            quick=("max_epochs=1",),
            rounds=5,
        )
        for name, target, raw_goal, lightning_goal in (("boring", BORING, 0.25, 0.5), ("module_mlp", MLP, 0.55, 0.6))
    },
}


STARTUP: dict[str, tuple[tuple[str, ...], Goals]] = {
    "import lightning": (("-c", "import lightning"), {"": None}),
    "import torch": (("-c", "import torch"), {"": None}),
    "single": ((TRAIN, *SHORT), {"": None, "import lightning": None}),
    "ddp 2": ((TRAIN, *SHORT, *DDP), {"": None, "import lightning": 0.7}),
    "ddp_spawn 2": ((TRAIN, *SHORT, *DDP, "strategy=ddp_spawn"), {"": None, "import lightning": None}),
    "raw ddp 2": ((TRAIN, *SHORT, *DDP, "engine=raw"), {"": None, "import torch": 1.2}),
    "--help": ((TRAIN, "--help"), {"": 1.0}),
    WRONG_KEY: ((TRAIN, "strategi=ddp"), {"": 1.0}),
}
"""Arguments of `python`, and the goals: for all seconds, and for those beyond the import that the command needs."""


def startup(context: BenchContext) -> list[Measurement]:
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
            rows.append(Measurement("startup", f"{name} - {baseline}" if baseline else name, seconds, goal=goal))
    return rows


def sweep(context: BenchContext) -> list[Measurement]:
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
    return [Measurement("sweep", name, values[name], goal=0.6)]


WORKLOADS: dict[str, Callable[[BenchContext], list[Measurement]]] = {
    **{name: partial(training.measure, name) for name, training in TRAINING.items()},
    "startup": startup,
    "sweep": sweep,
}
HELP = """
  linear         linear regression, batch 32, 10 epochs: the source's loop, a bare loop over tensors, both engines
  mlp            an MLP on MNIST, batch 128, one epoch: the same
  cnn            SimpleCNN on MNIST, batch 2000: the source's loop, both engines, and both in bf16
  module         a user's LightningModule, 2 epochs: Lightning's own Trainer, both engines; three forms of data
  boring         a LightningModule of one small layer, 3,000 steps of 8 an epoch: Lightning's own Trainer, both engines
  module_mlp     a LightningModule of the size of an MLP on MNIST, 860 steps of 64 an epoch: the same
  startup        whole commands, beyond importing Lightning or torch: single, ddp, ddp_spawn, raw; --help; a wrong key
  sweep          what a further job costs beyond its training
"""
