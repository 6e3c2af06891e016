"""Training: the same samples by the sources' loop, by a bare loop, and by both engines as they are by default."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from lockstep import launch
from lockstep.bench.context import BenchContext
from lockstep.bench.measurement import Measurement, take_turns
from lockstep.bench.payloads import MONITORING, STOCK, STRANGERS, BenchPayload
from lockstep.schemas.engine import ENGINES

MODULE = ("model=linear", f"++model._target_={STRANGERS}.Module", "data=model", f"+data._target_={STRANGERS}.Data")


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


def training_seconds(variant: Variant, shared: tuple[str, ...], context: BenchContext) -> float:
    """Of training alone."""
    overrides = (*shared, "test=false", *variant.overrides)
    if variant.baseline is not None:
        return context.time_baseline(variant.baseline, *overrides)
    return float(context.train(*overrides)["train_seconds"])


def measure_training(
    workload: str, variants: Mapping[str, Variant], shared: tuple[str, ...], rounds: int, context: BenchContext
) -> list[Measurement]:
    """A row for each variant and each of its goals, or one for a variant without."""
    calls = {name: partial(training_seconds, variant, shared, context) for name, variant in variants.items()}
    first, *_ = calls
    context.report(f"{first}, not counted: the first run finds files and memory cold")
    calls[first]()
    values = take_turns(calls, rounds, context.report)
    found = []
    for name, variant in variants.items():
        row = partial(Measurement, workload, name, "s", values[name])
        found += [row(other, values[other], goal=goal) for other, goal in variant.goals.items()] or [row()]
    return found


def linear(context: BenchContext) -> list[Measurement]:
    variants = {
        "source": Variant("source"),
        "bare": Variant("bare", goals={"source": None}),
        "raw": engine("raw", source=0.6),
        "lightning": engine("lightning", source=1.0),
    }
    return measure_training("linear", variants, ("experiment=linear_regression",), context.rounds, context)


def mlp(context: BenchContext) -> list[Measurement]:
    variants = {
        "bare": Variant("bare"),
        "source": Variant("source", goals={"bare": None}),
        "raw": engine("raw", bare=1.1),
        "lightning": engine("lightning", bare=1.3),
    }
    part = ("data.samples=20000", "data.val_size=0") if context.quick else ()
    shared = ("data=mnist", context.mnist(), *part, "model=mlp", "batch_size=128", "max_epochs=1")
    return measure_training("mlp", variants, shared, context.rounds, context)


def monitoring(context: BenchContext) -> list[Measurement]:
    """What TensorBoard takes of an epoch, as it is by default: the seconds of a run beside those without its own."""

    def seconds(name: str) -> tuple[float, float]:
        with context.folder() as folder:
            plan = context.plan(folder, *shared, f"engine={name}")
            watched, own = launch.start(BenchPayload(plan, ENGINES[name]), MONITORING)
            return watched, watched - own

    part = ("data.samples=20000",) if context.quick else ()
    shared = (
        "data=mnist",
        context.mnist(),
        *part,
        "model=mlp",
        "batch_size=128",
        "max_epochs=10",
        "test=false",
        "threads=1",
    )
    found = []
    for name in ENGINES:
        rounds = []
        for number in range(1, context.rounds + 1):
            context.report(f"round {number}/{context.rounds}, {name}")
            rounds.append(seconds(name))
        watched, rest = zip(*rounds, strict=True)
        found.append(Measurement("monitoring", name, "s", watched, "without", rest, goal=1.02))
    return found


def cnn(context: BenchContext) -> list[Measurement]:
    """A whole epoch by the sources' loop takes minutes, so a part of one."""
    bf16, full, half = "precision=bf16-mixed", 0.65, 0.26
    variants = {
        "source": Variant("source"),
        "raw": engine("raw", source=full),
        "lightning": engine("lightning", source=full, raw=1.03),
        "raw bf16": engine("raw", bf16, source=half),
        "lightning bf16": engine("lightning", bf16, **{"source": half, "raw bf16": 1.03}),
    }
    shared = (*cnn_overrides(context, context.pick(2000, 20_000)), "batch_size=2000")
    return measure_training("cnn", variants, shared, context.rounds, context)


def module(context: BenchContext) -> list[Measurement]:
    """A user's LightningModule by both engines and by Lightning's own Trainer, its data in each of three forms."""
    variants = {
        "stock": Variant(STOCK),
        "raw": engine("raw", stock=0.7),
        "lightning": engine("lightning", stock=1.0),
    }
    shared = (*MODULE, f"+data.samples={context.pick(6400, 25_600)}", "max_epochs=2", "threads=1")
    forms = {"tensors": ("true", 0), "samples": ("false", 0), "workers": ("false", 2)}
    found = []
    for name, (tensors, workers) in forms.items():
        data = (f"+data.tensors={tensors}", f"+data.workers={workers}")
        found += measure_training(f"module {name}", variants, (*shared, *data), context.rounds, context)
    return found


def cnn_overrides(context: BenchContext, samples: int) -> tuple[str, ...]:
    return ("experiment=mnist_cnn", context.mnist(), f"data.samples={samples}", "max_epochs=1")
