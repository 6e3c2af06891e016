"""The workloads, each trained in turn by a bare loop, by Lightning's own Trainer, and by Lockstep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from lockstep.command.build import plan_from
from lockstep.command.compose import compose_job
from lockstep.command.job import run
from lockstep.launch.start import start_ranks
from lockstep.plan.plan import Plan
from lockstep.plan.world import World

BASELINES = "bench.baselines"
Row = dict[str, object]  # of the table and of bench.csv, by their headings


@dataclass(frozen=True)
class BenchPayload:
    """A plan to run, and the name of the baseline that runs it."""

    world: World
    plan: Plan
    baseline: str


@dataclass(frozen=True)
class Workload:
    """The overrides of a training; `full` or `quick` says how much of it."""

    overrides: tuple[str, ...]
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    more_variants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def variants(self) -> Mapping[str, tuple[str, ...]]:
        """Return the further overrides of each variant by its name; the first two are the baselines."""
        return {"bare": (), "stock": (), "lockstep": (), **self.more_variants}


WORKLOADS = {
    "linear": Workload(("experiment=linear_regression", "callbacks=none")),
    "mlp": Workload(
        ("data.root='{root}'", "data=mnist", "model=mlp", "batch_size=128", "max_epochs=1"),
        quick=("+data.samples=20000", "data.val_size=0"),
    ),
    "cnn": Workload(  # on a subset: a whole epoch takes half a minute
        ("data.root='{root}'", "experiment=mnist_cnn", "max_epochs=1", "batch_size=2000"),
        full=("+data.samples=20000",),
        quick=("+data.samples=4000",),
        more_variants={"lockstep bf16": ("precision=bf16-mixed",)},
    ),
}


def measure(name: str, quick: bool, root: str) -> list[Row]:
    """Return the rows of a workload; MNIST is below `root`."""
    workload, rounds = WORKLOADS[name], 2 if quick else 3
    words = (*workload.overrides, *(workload.quick if quick else workload.full), "test=false")
    shared = [word.format(root=root) for word in words]
    print(f"bench {name}: the first run is not counted, which finds files and memory cold", flush=True)
    train_seconds("bare", shared)
    values: dict[str, list[float]] = {variant: [] for variant in workload.variants}
    for number in range(1, rounds + 1):
        for variant, overrides in workload.variants.items():
            print(f"bench {name}: round {number}/{rounds}, {variant}", flush=True)
            values[variant].append(train_seconds(variant, [*shared, *overrides]))
    return [row(name, variant, values) for variant in values]


def train_seconds(variant: str, words: Sequence[str]) -> float:
    """Return the seconds of training in a run, or by the baseline of this name in a like process."""
    with TemporaryDirectory(prefix="lockstep-bench-", ignore_cleanup_errors=True) as folder:
        if variant.startswith("lockstep"):
            return float(run([*words, f"hydra.run.dir={folder}"])["train_seconds"])
        plan = plan_from(compose_job([*words])[0], Path(folder))
        return float(start_ranks(BenchPayload(plan.world, plan, variant), BASELINES))


def row(workload: str, variant: str, values: Mapping[str, Sequence[float]]) -> Row:
    """Return a row of the table: the seconds of a variant, and its ratio to each baseline in each round."""
    cells: Row = {"workload": workload, "variant": variant, "seconds": median(values[variant])}
    for baseline in ("bare", "stock"):
        ratios = [value / base for value, base in zip(values[variant], values[baseline], strict=True)]
        cells |= {f"of {baseline}": median(ratios), f"{baseline} min": min(ratios), f"{baseline} max": max(ratios)}
    return cells
