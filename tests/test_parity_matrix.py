"""Net × strategy × setting: Lightning by its own loop against the raw engine, which shares no such line with it.

The cells of a world run on ranks that start once. What `compare` compares: loss, norm, rate, samples and logged values
of every step, all validations, results, best epoch, weights, optimizer and schedule states at the end.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.plan import schemas
from lockstep.plan.plan import Plan
from lockstep.runs.compare import Comparison, compare
from tests.conftest import IN_PROCESS, MakeUserPlan
from tests.rank_helpers import run_plans

pytestmark = [*IN_PROCESS, pytest.mark.slow, pytest.mark.timeout(1800)]

LINE = ("data=line", "data.samples=61", "data.val_size=1", "model=regression")
SPLITS = ("data=digits", "data.test_size=1735", "data.val_size=1")  # 61 are left to train on: a ragged batch of one
DIGITS = (*SPLITS, "trainer.limit_test_batches=2")
ALL_DIGITS = ("data=digits", "trainer.limit_train_batches=5", "trainer.limit_test_batches=2")
MOMENTUM = ("optimizer=sgd", "optimizer.lr=0.01", "optimizer.momentum=0.9")
WARMUP = ("scheduler=warmup_linear", "scheduler.warmup_steps=3")
MLP = ("model=mlp", "model.net.hidden=[32]")
JOBS: dict[str, Sequence[str]] = {
    "linear": (*LINE, *MOMENTUM, *WARMUP),
    "mlp": (*MLP, *SPLITS, *MOMENTUM, "scheduler=onecycle", "accumulate_grad_batches=4"),
    "wide": ("model=mlp", "model.net.hidden=[700,900]", *ALL_DIGITS, "batch_size=64"),
    "clipped": (*MLP, *DIGITS, "optimizer=adamw", "gradient_clip_val=0.5", "accumulate_grad_batches=3"),
    "values": (*MLP, *DIGITS, "gradient_clip_val=0.01", "trainer.gradient_clip_algorithm=value", "scale_lr=true"),
    "interrupted": ("model=lenet", *ALL_DIGITS, "trainer.max_steps=7", "optimizer=adamw_groups"),
    "seldom": ("model=linear", *ALL_DIGITS, "trainer.check_val_every_n_epoch=2", "drop_last=true"),
    "unvalidated": ("model=linear", *ALL_DIGITS, "trainer.max_steps=5", "trainer.check_val_every_n_epoch=2"),
    "overfit": ("model=mlp", "data=digits", "trainer.overfit_batches=3", "batch_size_per_device=7"),
    "cnn": ("model=cnn", *DIGITS, "drop_last=true"),
    "split": ("model=split_cnn", *DIGITS, *MOMENTUM, "gradient_clip_val=0.5", *WARMUP),
    "sum": (*MLP, *DIGITS, "loss_reduction=sum", "optimizer=sgd", "optimizer.lr=0.001"),
    "transformer": (
        *("model=transformer", "model.net.width=16", "model.net.layers=2", "data=text", "data.length=16"),
        *("optimizer=adamw_groups", "gradient_clip_val=0.5", "accumulate_grad_batches=2", "batch_size=13"),
        "trainer.limit_train_batches=5",
    ),
    "classifier": ("model=classifier", "data=blobs_data", "batch_size=null"),
    "manual": ("model=gan", "data=blobs_data"),
    "accumulated": ("model=line", "model._target_=strange_zoo.WGAN", "data=none", "batch_size=null"),
    "stream": ("model=regressor", "data=stream"),
    "masked": ("model=masked", "data=sentences_data", "accumulate_grad_batches=2"),
}
SYNC = ("model=cnn", *DIGITS, "sync_batchnorm=true")
COMMON = ("batch_size=12", "seed=11", "threads=1", "accelerator=cpu", "logger=none", "max_epochs=2")
ALIKE = ("engine.fast_loop=false", "memory_format=contiguous")
WORLDS = {"single": (), **{f"ddp {n}": ("strategy=ddp", f"devices={n}") for n in (2, 3)}}
WORLDS["spawn 2"] = ("strategy=ddp_spawn", "devices=2")
OTHERS = {
    "dp 3": ("single", "clipped"),
    "model_parallel 2": ("single", "split"),
    "virtual 2": ("ddp 2", "cnn"),
    "zero1 2": ("ddp 2", "manual"),
    "fsdp 2": ("ddp 2", "clipped"),
    "tensor_parallel 2": ("single", "clipped"),
}
"""Strategies that raw has not, and the world in which it repeats a job."""
for _name in OTHERS:
    WORLDS[_name] = (f"strategy={_name.split()[0]}", f"devices={_name.split()[1]}")
FLOAT64, BFLOAT16 = "precision=64-true", "precision=bf16-mixed"
CELLS = [
    *((job, "ddp 2", FLOAT64) for job in JOBS if job != "wide"),
    *((job, "single", FLOAT64) for job in ("mlp", "clipped", "split")),
    *((job, "ddp 3", "precision=32-true") for job in ("clipped", "wide")),  # a sum has several orders
    ("mlp", "spawn 2", FLOAT64),
    ("cnn", "ddp 2", BFLOAT16),
]
RunOf = Callable[[str, str, str], Path]


@pytest.fixture(scope="module")
def folders() -> dict[str, Path]:
    """Return the folders of worlds whose cells have run."""
    return {}


@pytest.fixture
def run_of(folders: dict[str, Path], make_user_plan: MakeUserPlan, tmp_path_factory: pytest.TempPathFactory) -> RunOf:
    """Return the folder of a cell; the first call for a world runs all of its cells."""

    def pair(job: str, words: Sequence[str], folder: Path) -> list[Plan]:
        own = () if any("batch_size" in word for word in words) else COMMON[:1]
        name = f"{job} {len(list(folder.parent.iterdir()))} {folder.name}"
        plan = make_user_plan(*own, *COMMON[1:], *ALIKE, *words, folder=name)
        engine, (strategy, devices) = schemas.Raw("raw", "ddp"), plan.strategy.mirrored(plan)
        raw = replace(plan, engine=engine, strategy=strategy, devices=devices, run_dir=str(folder / "raw"))
        return [replace(plan, run_dir=str(folder / "lightning")), raw]

    def run_of(job: str, world: str, precision: str) -> Path:
        if world not in folders:
            folders[world] = folder = tmp_path_factory.mktemp(world.replace(" ", ""))
            cells = [cell for cell in CELLS if cell[1] == world]
            cells += [(OTHERS[world][1], world, FLOAT64)] if world in OTHERS else []
            plans = [
                each
                for name, _, kind in cells
                for each in pair(name, (*JOBS[name], *WORLDS[world], kind), folder / f"{name}-{kind}")
            ]
            if world == "ddp 2":
                plans += pair("sync", (*SYNC, *WORLDS[world], FLOAT64), folder / "sync")
                plans += pair("seed", (*JOBS["mlp"], *WORLDS[world], FLOAT64, "seed=12"), folder / "seed")[1:]
            run_plans([plan for plan in plans if world not in OTHERS or plan.engine.name == "lightning"], folder)
        return folders[world] / f"{job}-{precision}"

    return run_of


def both(run: Path) -> Comparison:
    return compare(run / "lightning", run / "raw")


@pytest.mark.parametrize(("job", "world", "precision"), CELLS, ids=" ".join)
def test_cell(job: str, world: str, precision: str, run_of: RunOf) -> None:
    comparison = both(run_of(job, world, precision))
    assert comparison.verdict == "identical", comparison.text()
    counted = comparison.quantities
    assert counted["loss"].compared >= 3
    quantities = {"sample ids", "gradient norm", "learning rate", "validation", "weights saved", "optimizer state"}
    assert quantities <= counted.keys()


@pytest.mark.parametrize("world", OTHERS)
def test_another_strategy(world: str, run_of: RunOf) -> None:
    """Sums in another order, to 1e-10; zero1 has the same order."""
    mirror, job = OTHERS[world]
    lightning, raw = run_of(job, world, FLOAT64) / "lightning", run_of(job, mirror, FLOAT64) / "raw"
    comparison = compare(lightning, raw)
    assert comparison.within_tolerance, comparison.text()
    assert comparison.max_diff < 1e-10


def test_statistics_over_ranks_are_other_sums(run_of: RunOf) -> None:
    """Raw adds them by other collectives, to 1e-10."""
    comparison = both(run_of("mlp", "ddp 2", FLOAT64).with_name("sync"))
    assert comparison.within_tolerance, comparison.text()
    assert 0 < comparison.max_diff < 1e-10


def test_the_matrix_can_fail(run_of: RunOf) -> None:
    """Another seed is another run, by the record and by the weights; other ranks have other last bits."""
    run, single = run_of("mlp", "ddp 2", FLOAT64), run_of("mlp", "single", FLOAT64) / "lightning"
    assert not compare(run / "lightning", run.with_name("seed") / "raw", tolerance=1e-3).within_tolerance
    assert compare(single, run / "raw", tolerance=0.0).verdict == "different"
    assert compare(single, run / "raw").within_tolerance
