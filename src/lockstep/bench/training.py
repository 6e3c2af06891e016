"""Training: the same samples by the sources' recipe, by a bare loop, and by both engines as they are by default."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from lockstep.bench.loops_work import Recipe
from lockstep.bench.row import Goal, Row, alternated
from lockstep.bench.setting import Setting


@dataclass(frozen=True)
class Way:
    """A loop of the bench's own, or an engine with `overrides`; `goals` are ratios to other ways, by their names.

    A yardstick whose goal is None is shown beside it and not judged.
    """

    recipe: Recipe | None = None
    overrides: tuple[str, ...] = ()
    goals: Mapping[str, Goal | None] = field(default_factory=dict)


def engine(name: str, *overrides: str, **goals: Goal | None) -> Way:
    return Way(None, (f"engine={name}", *overrides), goals)


def seconds_of(way: Way, shared: tuple[str, ...], setting: Setting) -> float:
    """Seconds of training alone."""
    overrides = (*shared, "test=false", *way.overrides)
    if way.recipe is not None:
        return setting.looped(way.recipe, *overrides)
    return float(setting.trained(*overrides)["train_seconds"])


def rows(
    workload: str,
    ways: Mapping[str, Way],
    shared: tuple[str, ...],
    setting: Setting,
    samples: int | None = None,
    dear: bool = False,
) -> list[Row]:
    """A row for each way and yardstick, one for a way that has none. With `samples`: so many a second, not seconds."""

    def value(way: Way) -> float:
        seconds = seconds_of(way, shared, setting)
        return samples / seconds if samples else seconds

    calls: dict[str, Callable[[], float]] = {name: partial(value, way) for name, way in ways.items()}
    first, *_ = calls
    setting.say(f"{first}, not counted: the first of all finds files and memory cold")
    calls[first]()
    values = alternated(calls, setting.dear_rounds if dear else setting.rounds, setting.say)
    unit, found = "samples/s" if samples else "s", []
    for name, way in ways.items():
        if not way.goals:
            found.append(Row(workload, name, unit, values[name]))
        for other, goal in way.goals.items():
            timed = [samples / value if samples else value for value in (*values[name], *values[other])]
            row = Row(workload, name, unit, values[name], other, values[other], goal=goal, seconds=min(timed))
            found.append(row)
    return found


def s2(setting: Setting) -> list[Row]:
    ways = {
        "source": Way("source"),
        "bare": Way("bare", goals={"source": None}),
        "raw": engine("raw", source=Goal(0.6)),
        "lightning": engine("lightning", source=Goal(1.0)),
    }
    return rows("s2", ways, ("experiment=linear_regression",), setting)


def mlp(setting: Setting) -> list[Row]:
    ways = {
        "bare": Way("bare"),
        "source": Way("source", goals={"bare": None}),
        "raw": engine("raw", bare=Goal(1.1)),
        "lightning": engine("lightning", bare=Goal(1.3)),
    }
    part = ("data.samples=20000", "data.val_size=0") if setting.quick else ()
    shared = ("data=mnist", setting.mnist(), *part, "model=mlp", "batch_size=128", "max_epochs=1")
    return rows("mlp", ways, shared, setting)


def cnn(setting: Setting, batch_size: int, quick: int) -> list[Row]:
    """An epoch as written takes minutes, so a part of one: what is compared are the same samples by each way."""
    bf16 = "precision=bf16-mixed"
    full, half = (Goal(0.65), Goal(0.26)) if batch_size == 2000 else (None, None)
    ways = {
        "source": Way("source"),
        "raw": engine("raw", source=full),
        "lightning": engine("lightning", source=full, raw=Goal(1.03)),
        "raw bf16": engine("raw", bf16, source=half),
    }
    if not setting.quick:
        ways["lightning bf16"] = engine("lightning", bf16, **{"source": half, "raw bf16": Goal(1.03)})
    shared = (*cnn_part(setting, quick, 20_000), f"batch_size={batch_size}")
    return rows(f"cnn_{batch_size}", ways, shared, setting)


def cnn_part(setting: Setting, quick: int, full: int) -> tuple[str, ...]:
    samples = f"data.samples={setting.pick(quick, full)}"
    return ("experiment=mnist_cnn", setting.mnist(), samples, "max_epochs=1")


def ddp_scaling(setting: Setting) -> list[Row]:
    """The same cores, as two threads of one process and as two ranks of one thread."""
    alone, two = ("threads=2",), ("threads=1", "strategy=ddp", "devices=2")
    ways = {}
    for name in ("raw", "lightning"):
        ways[name] = engine(name, *alone)
        ways[f"{name} ddp 2"] = engine(name, *two, **{name: Goal(0.95, at_least=True)})
    batch = f"batch_size={setting.pick(1000, 2000)}"
    shared = (*cnn_part(setting, 2000, 20_000), batch, "accelerator=cpu")
    return rows("ddp_scaling", ways, shared, setting, setting.pick(2000, 20_000), dear=True)
