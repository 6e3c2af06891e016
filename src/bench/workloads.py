"""The workloads, by name: those that only train are a table of variants, the others are functions."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.measurement import Measurement, take_turns
from bench.runs import BASELINES, BenchContext
from lockstep.schemas.engine import ENGINES

TRAIN = str(Path(__file__).parents[2] / "train.py")
STOCK, COUNTER = BASELINES["stock"], "bench.count_collectives"
USER_CODE = ("model=linear", f"++model._target_={STOCK}.Module", "data=model", f"+data._target_={STOCK}.Data")
DIGITS = ("data=digits", "accelerator=cpu", "strategy=ddp")
SHORT = ("experiment=linear_regression", "max_epochs=2")
DDP = ("strategy=ddp", "devices=2", "accelerator=cpu")
WRONG_KEY = "a wrong key"


class Variant(NamedTuple):
    """A run by an engine or a baseline; `goals` bound its ratios to other variants (None: shown, not judged)."""

    engine: str
    goals: Mapping[str, float | None] = {}
    overrides: tuple[str, ...] = ()


class Training(NamedTuple):
    """Variants of the same work, whose seconds of training are compared; `full` or `quick` says how much of it."""

    variants: Mapping[str, Variant]
    overrides: tuple[str, ...]
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    on_mnist: bool = False

    def measure(self, name: str, context: BenchContext) -> list[Measurement]:
        """Return a row for each variant and each of its goals, or one for a variant without goals."""
        shared = (*self.overrides, *(self.quick if context.quick else self.full), "test=false")
        shared += (context.mnist(),) if self.on_mnist else ()
        calls = {
            name: partial(context.train_seconds, variant.engine, *shared, *variant.overrides)
            for name, variant in self.variants.items()
        }
        first = next(iter(calls))
        context.report(f"{first}, not counted: the first run finds files and memory cold")
        calls[first]()
        values = take_turns(calls, context.rounds, context.report)
        rows = []
        for variant, (_, goals, _) in self.variants.items():
            row = partial(Measurement, name, variant, "s", values[variant])
            rows += [row(baseline, values[baseline], goal) for baseline, goal in goals.items()] or [row()]
        return rows


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
        ("data=mnist", "model=mlp", "batch_size=128", "max_epochs=1"),
        quick=("data.samples=20000", "data.val_size=0"),
        on_mnist=True,
    ),
    "cnn": Training(  # on a subset: a whole epoch by the sources' loop takes minutes
        {
            "source": Variant("source"),
            "raw": Variant("raw", {"source": 0.65}),
            "lightning": Variant("lightning", {"source": 0.65, "raw": 1.03}),
            "raw bf16": Variant("raw", {"source": 0.26}, ("precision=bf16-mixed",)),
            "lightning bf16": Variant("lightning", {"source": 0.26, "raw bf16": 1.03}, ("precision=bf16-mixed",)),
        },
        ("experiment=mnist_cnn", "max_epochs=1", "batch_size=2000"),
        full=("data.samples=20000",),
        quick=("data.samples=2000",),
        on_mnist=True,
    ),
    "module": Training(
        {
            f"{engine}, {form}": Variant(
                engine,
                {f"stock, {form}": goal} if goal else {},
                (f"+data.tensors={tensors}", f"+data.workers={workers}"),
            )
            for form, (tensors, workers) in FORMS.items()
            for engine, goal in {"stock": None, "raw": 0.7, "lightning": 1.0}.items()
        },
        (*USER_CODE, "max_epochs=2", "threads=1"),
        full=("+data.samples=25600",),
        quick=("+data.samples=6400",),
    ),
    "monitoring": Training(
        {
            "raw, logger=none": Variant("raw", overrides=("logger=none",)),
            "raw": Variant("raw", {"raw, logger=none": 1.02}),
            "lightning, logger=none": Variant("lightning", overrides=("logger=none",)),
            "lightning": Variant("lightning", {"lightning, logger=none": 1.02}),
        },
        ("data=mnist", "model=mlp", "batch_size=128", "max_epochs=10", "threads=1"),
        quick=("data.samples=20000",),
        on_mnist=True,
    ),
    "scaling": Training(
        {
            f"ranks: {ranks}": Variant("raw", {"ranks: 1": None} if ranks > 1 else {}, (f"devices={ranks}",))
            for ranks in (1, 2, 4, 8)
        },
        (*DIGITS, "threads=1", "data.val_size=0", "batch_size=256", "max_epochs=10"),
    ),
}


def collectives(context: BenchContext) -> list[Measurement]:
    """Count the calls that a step and an epoch add, by subtracting runs of few and many steps, of one epoch and two.

    The gradients of this MLP fit in one bucket, so a step needs one all-reduce.
    """

    def count(engine: str, epochs: int, batch_size: int) -> tuple[int, int, int]:
        """Return the all-reduces, other collectives and steps of a run."""
        context.report(f"{engine}, epochs: {epochs}, batch size: {batch_size}")
        shared = (*DIGITS, "devices=2", "model=mlp", "logger=none", "test=false")
        steps = (f"max_epochs={epochs}", f"batch_size={batch_size}", f"engine={engine}")
        counts: tuple[int, int, int] = context.on_ranks(COUNTER, ENGINES[engine], *shared, *steps)
        return counts

    rows = []
    for engine in ENGINES:
        few, few_others, few_steps = count(engine, 1, 320)
        many, _, many_steps = count(engine, 1, 160)
        twice, twice_others, _ = count(engine, 2, 320)
        step = (many - few) / (many_steps - few_steps)
        row = partial(Measurement, "collectives", unit="calls")
        rows += [
            row(f"{engine}, all-reduces per step", values=(step,), goal=1.0),
            row(f"{engine}, all-reduces per epoch", values=(twice - few - step * few_steps,), goal=1.0),
            row(f"{engine}, others per epoch", values=(float(twice_others - few_others),)),
        ]
    return rows


STARTUP: dict[str, tuple[tuple[str, ...], str, float | None]] = {
    "import lightning": (("-c", "import lightning"), "", None),
    "import torch": (("-c", "import torch"), "", None),
    "single": ((TRAIN, *SHORT), "import lightning", None),
    "ddp 2": ((TRAIN, *SHORT, *DDP), "import lightning", 0.7),
    "ddp_spawn 2": ((TRAIN, *SHORT, *DDP, "strategy=ddp_spawn"), "import lightning", None),
    "raw ddp 2": ((TRAIN, *SHORT, *DDP, "engine=raw"), "import torch", 1.2),
    "--help": ((TRAIN, "--help"), "", 1.0),
    WRONG_KEY: ((TRAIN, "strategi=ddp"), "", 1.0),
}
"""Arguments of `python`, the import that the command needs in any case, and the goal for the seconds beyond it."""


def startup(context: BenchContext) -> list[Measurement]:
    """Time whole commands, and what they take beyond the import in the same round."""
    calls = {
        name: partial(context.time_command, *words, status=2 if name == WRONG_KEY else 0)
        for name, (words, *_) in STARTUP.items()
    }
    values = take_turns(calls, context.rounds, context.report)
    row, rows = partial(Measurement, "startup", unit="s"), []
    for name, (_, base, goal) in STARTUP.items():
        rows.append(row(name, values=values[name], goal=None if base else goal))
        if base:
            pairs = zip(values[name], values[base], strict=True)
            rows.append(row(f"{name} - {base}", values=tuple(seconds - least for seconds, least in pairs), goal=goal))
    return rows


def sweep(context: BenchContext) -> list[Measurement]:
    """Time a further job, without its training: (wall clock of n jobs - of one) / (n - 1)."""
    jobs = 2 if context.quick else 5

    def time_sweep(count: int) -> float:
        with context.folder() as folder:
            seeds = ",".join(map(str, range(count)))
            words = (TRAIN, "-m", f"seed={seeds}", *SHORT, *DDP, f"hydra.sweep.dir={folder}/sweep")
            seconds = context.time_command(*words)
            metrics = [json.loads(path.read_text()) for path in Path(folder).glob("sweep/*/metrics.json")]
            return seconds - sum(float(job["train_seconds"]) for job in metrics)

    calls = {f"jobs: {count}, - training": partial(time_sweep, count) for count in (1, jobs)}
    values = take_turns(calls, context.rounds, context.report)
    rows = [Measurement("sweep", name, "s", seconds) for name, seconds in values.items()]
    further = tuple((many - one) / (jobs - 1) for one, many in zip(*values.values(), strict=True))
    return [*rows, Measurement("sweep", "further job - training", "s", further, goal=0.6)]


WORKLOADS: dict[str, Callable[[BenchContext], list[Measurement]]] = {
    **{name: partial(training.measure, name) for name, training in TRAINING.items()},
    "collectives": collectives,
    "startup": startup,
    "sweep": sweep,
}
HELP = """
  linear         linear regression, batch 32, 10 epochs: the source's loop, a bare loop over tensors, both engines
  mlp            an MLP on MNIST, batch 128, one epoch: the same
  cnn            SimpleCNN on MNIST, batch 2000: the source's loop, both engines, and both in bf16
  module         a user's LightningModule, 2 epochs: Lightning's own Trainer, both engines; three forms of data
  monitoring     the MLP on MNIST by each engine, with TensorBoard as it is by default and without a logger
  scaling        the time over 1 to 8 ranks of one thread, an MLP on digits
  collectives    calls to other ranks in a step and in an epoch, counted
  startup        whole commands, beyond importing Lightning or torch: single, ddp, ddp_spawn, raw; --help; a wrong key
  sweep          what a further job costs beyond its training
"""
