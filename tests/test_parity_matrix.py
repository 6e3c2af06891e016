"""Each net in each kind of world, by both engines, with a ragged last batch of one sample: most ranks have none of it.

Lightning = raw bit for bit in float32. Every world = single to 1e-10 in float64, where the raw engine stands for both.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.compare import compare
from lockstep.config_error import ConfigError
from lockstep.plan import Plan
from tests.comparing import require_identical
from tests.conftest import IN_PROCESS
from tests.inspections import plan_here
from tests.rank_helpers import run_plans

LINE = ("data=line", "data.samples=61", "data.val_size=1")
DIGITS = ("data=digits", "data.test_size=1735", "data.val_size=1")  # 61 are left to train on
MOMENTUM = ("optimizer=sgd", "optimizer.lr=0.01", "optimizer.momentum=0.9")
JOBS = {
    "linear": ("model=regression", *LINE, *MOMENTUM, "scheduler=warmup_linear", "scheduler.warmup_steps=3"),
    "mlp": (
        "model=mlp",
        "model.net.hidden=[32]",
        *DIGITS,
        *MOMENTUM,
        "scheduler=onecycle",
        "accumulate_grad_batches=4",
    ),
    "lenet": ("model=lenet", "model.net.dropout=0", *DIGITS, "optimizer=adamw", "accumulate_grad_batches=2"),
    "cnn-sync": ("model=cnn", "model.net.norm=batch", "sync_batchnorm=true", *DIGITS, "optimizer=adam"),
    "split_cnn": ("model=split_cnn", *DIGITS, *MOMENTUM, "drop_last=true", "gradient_clip_val=0.5"),
}
PER_RANK_JOBS = {
    "lenet-dropout": ("model=lenet", *DIGITS),
    "cnn-batchnorm": ("model=cnn", "model.net.norm=batch", *DIGITS, "drop_last=true"),
    "bf16": ("model=mlp", "precision=bf16-mixed", "accumulate_grad_batches=2", *DIGITS),
}
"""Jobs whose numbers depend on the number of ranks."""

COMMON = ("batch_size=12", "max_epochs=2", "seed=11", "threads=1", "accelerator=cpu", "logger=none", "test=false")
WORLDS = [("single", 1), ("ddp", 2), ("ddp", 3), ("ddp_spawn", 2), ("fsdp", 3), ("dp", 3), ("model_parallel", 2)]
QUICK_WORLDS = [("single", 1), ("ddp", 2), ("model_parallel", 2)]
FLOAT32, FLOAT64 = "precision=32-true", "precision=64-true"
pytestmark = [*IN_PROCESS, pytest.mark.timeout(900)]


def refusal_of(job: str, strategy: str) -> str | None:
    """Return the message for a cell that is rejected."""
    if strategy == "model_parallel" and job != "split_cnn":
        return "strategy=model_parallel needs a net with stages, and it has none"
    if strategy == "dp" and job == "cnn-sync":
        return "sync_batchnorm=true: each replica of strategy=dp normalises its own slice of the batch"
    return None


def plan_of(overrides: tuple[str, ...], strategy: str, devices: int, *more: str, folder: Path) -> Plan:
    return plan_here([*COMMON, *overrides, f"strategy={strategy}", f"devices={devices}", *more], folder)


def jobs_of(strategy: str) -> dict[str, tuple[str, ...]]:
    """Return the jobs of a strategy; ddp_spawn differs from ddp only by how ranks start."""
    jobs = JOBS | (PER_RANK_JOBS if strategy == "ddp" else {})
    few = ("mlp", "lenet") if strategy == "ddp_spawn" else jobs
    return {job: jobs[job] for job in few if not refusal_of(job, strategy)}


RunsOf = Callable[[str, int], Path]


@pytest.fixture(scope="module")
def runs_of(tmp_path_factory: pytest.TempPathFactory) -> RunsOf:
    """Return the folder of the runs of a world, which are made by one start of its ranks."""
    folders: dict[tuple[str, int], Path] = {}

    def runs_of(strategy: str, devices: int) -> Path:
        if (strategy, devices) not in folders:
            folders[strategy, devices] = folder = tmp_path_factory.mktemp(f"{strategy}-{devices}")
            kinds = {"lightning": ("engine=lightning",), "raw": ("engine=raw",), "float64": ("engine=raw", FLOAT64)}
            plans = [
                plan_of(options, strategy, devices, *more, folder=folder / job / kind)
                for job, options in jobs_of(strategy).items()
                for kind, more in kinds.items()
                if kind != "float64" or job in JOBS
            ]
            run_plans(plans, folder)
        return folders[strategy, devices]

    return runs_of


CELLS = [(job, *world) for world in WORLDS for job in jobs_of(world[0])]


@pytest.mark.parametrize(
    ("job", "strategy", "devices"),
    [pytest.param(*cell, marks=[pytest.mark.slow] * (cell[1:] not in QUICK_WORLDS)) for cell in CELLS],
)
def test_cell(job: str, strategy: str, devices: int, runs_of: RunsOf) -> None:
    runs = runs_of(strategy, devices) / job
    engines = require_identical(runs / "lightning", runs / "raw")
    assert engines.quantities["loss"].compared >= 4
    if job not in JOBS:
        return
    single = runs_of("single", 1) / job
    across = compare(single / "float64", runs / "float64", tolerance=1e-10)
    assert across.within_tolerance, across.text()
    equal = {"model_parallel": ("single", 1), "ddp_spawn": ("ddp", 2)}.get(strategy)
    if equal is not None:
        require_identical(runs_of(*equal) / job / "raw", runs / "lightning")


@pytest.mark.parametrize(("job", "strategy"), [("mlp", "model_parallel"), ("cnn-sync", "dp")])
def test_impossible_cells_are_rejected(job: str, strategy: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        plan_of(JOBS[job], strategy, 2, folder=tmp_path)
    assert str(refusal_of(job, strategy)) in str(raised.value)


def test_the_matrix_can_fail(runs_of: RunsOf) -> None:
    """Sums in another order are other bits; each rank's own statistics make another run."""
    single, two = runs_of("single", 1), runs_of("ddp", 2)
    assert compare(single / "mlp" / "float64", two / "mlp" / "float64", tolerance=0.0).verdict == "different"
    assert not compare(two / "cnn-sync" / "raw", two / "cnn-batchnorm" / "raw").within_tolerance
