"""Net × strategy × world × precision: every layout of weights computes what one process computes, at every step."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from lockstep.engine.step import ModuleStep
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.runs.compare import compare
from lockstep.strategies.parallel.tensor_layout import copied_part, is_here, local_shard, parameters_of
from tests.comparing import lines
from tests.conftest import IN_PROCESS, MakeUserPlan
from tests.rank_helpers import run_named, run_plan

pytestmark = [*IN_PROCESS, pytest.mark.slow, pytest.mark.timeout(1800)]

RATES = ("optimizer=adamw_groups", "optimizer.lr=0.01", "scheduler=onecycle")
JOBS = {
    "mlp": (
        *("model=mlp", "model.net.hidden=[32,20,16]", "data=digits", "data.test_size=1759", "data.val_size=1"),
        *("batch_size=12", *RATES),
    ),
    "transformer": (
        *("model=transformer", "model.net.width=16", "model.net.layers=2", "model.net.dropout=0", "data=text"),
        *("data.length=16", "data.val_size=13", "data.test_size=2446", "batch_size=13", *RATES),
    ),
    "module": ("model=with_net", "+model.kind=staged", "data=blobs_data", "+data.samples=61", "batch_size=9"),
}
"""37 digits, 35 texts, and 37 points of a user's module with its own AdamW and schedule. The last batch is ragged."""
COMMON = (
    *("max_epochs=2", "accumulate_grad_batches=2", "gradient_clip_val=0.5", "seed=11", "threads=1", "accelerator=cpu"),
    *("memory_format=contiguous", "record.weights=step", "trainer.limit_test_batches=2"),
)
MESHES = {
    "mesh 2": ("devices=2", "strategy.shard=2"),
    "mesh 1x2x2": ("devices=4", "strategy.shard=2", "strategy.tensor=2"),
    "mesh 2x1x2": ("devices=4", "strategy.replicate=2", "strategy.tensor=2"),
    "mesh 2x2x1": ("devices=4", "strategy.replicate=2", "strategy.shard=2"),
}
PLAN_OF_MODULE = "strategy.plan={net.stages.0: colwise, net.stages.1.1: rowwise}"
DIVIDED = ("tensor_parallel 2", "mesh 1x2x2")
WORLDS = {
    1: ["single 1"],
    2: ["zero1 2", "fsdp 2", "tensor_parallel 2", "pipeline 2", "mesh 2"],
    4: ["fsdp 4", "tensor_parallel 4", "pipeline 4", "mesh 1x2x2", "mesh 2x1x2", "mesh 2x2x1"],
}
FLOAT64, FLOAT32, BFLOAT16 = PRECISIONS = ("64-true", "32-true", "bf16-mixed")
CELLS = [
    *((job, layout, FLOAT64) for job in ("transformer", "module") for layout in WORLDS[2]),
    *((job, layout, FLOAT32) for job, layout in zip(cycle(("mlp", "transformer", "module")), WORLDS[2], strict=False)),
    *((job, layout, BFLOAT16) for job, layout in zip(cycle(("module", "mlp", "transformer")), WORLDS[2], strict=False)),
    *(("transformer", layout, FLOAT64) for layout in WORLDS[4] if layout != "fsdp 4"),
    ("mlp", "fsdp 4", FLOAT64),
    ("module", "mesh 1x2x2", FLOAT64),
]
"""In float64 each layout of two ranks by two jobs; each layout in each precision, and each of four, by one job."""
SINGLES = [(job, "single 1", precision) for job in JOBS for precision in PRECISIONS]
DRIFTS = {
    "tensor_parallel 2": "replicated of ranks 0 and 1",
    "pipeline 2": "replicated on 0, 1 of ranks 0 and 1",
    "mesh 1x2x2": "replicated shard=1 of ranks 2 and 3",
    "mesh 2x1x2": "replicated of ranks 0 and 3",
    "mesh 2x2x1": "replicated shard=1 of ranks 1 and 3",
}
"""What is told of a transformer if a copy of a weight on the last rank gets another value."""
DRIFTED, DOUBLED = "drifted", "doubled"
PLANTED = [*(("transformer", layout, DRIFTED) for layout in DRIFTS), ("mlp", "fsdp 2", DOUBLED)]
BOUND = 0.02
"""The largest difference of a step's loss or gradient norm from that of `single` in bf16-mixed: measured 0.0056."""
WEIGHT = ModuleStep.loss_weight
RunOf = Callable[..., Path]


def drift(optimizer: Optimizer, *_: object) -> None:
    """Change a weight on the last rank, of which another rank has a copy."""
    copies = (weight for weight in parameters_of(optimizer) if is_here(weight) and copied_part(weight) is not None)
    if dist.get_rank() == dist.get_world_size() - 1:
        local_shard(next(copies).data).add_(1e-9)


def run_one(name: str, plan: Plan, context: RankContext) -> None:
    """On a rank: run a plan, with what is planted."""
    with ExitStack() as planted:
        if name.endswith(DRIFTED):
            planted.enter_context(register_optimizer_step_post_hook(drift))
        if name.endswith(DOUBLED):
            planted.enter_context(patch.object(ModuleStep, "loss_weight", lambda *all_: 2 * WEIGHT(*all_)))
        run_plan(plan, context)


@pytest.fixture(scope="module")
def folders() -> dict[int, Path]:
    """Return the folders of worlds whose cells have run."""
    return {}


@pytest.fixture
def run_of(folders: dict[int, Path], make_user_plan: MakeUserPlan, tmp_path_factory: pytest.TempPathFactory) -> RunOf:
    """Return the folder of a cell; the first call for a world runs all of its cells."""

    def plan_of(job: str, layout: str, precision: str) -> Plan:
        name, devices = layout.split()
        dtype = {DRIFTED: FLOAT64, DOUBLED: BFLOAT16}.get(precision, precision)
        words = [*JOBS[job], *COMMON, f"strategy={name}", f"precision={dtype}"]
        words += MESHES.get(layout, (f"devices={devices}",))
        words += [PLAN_OF_MODULE] if job == "module" and layout in DIVIDED else []
        words += ["max_epochs=1", "trainer.limit_train_batches=2"] if precision == DRIFTED else []
        return make_user_plan(*words, folder=place(job, layout, precision))

    def run_of(*cell: str) -> Path:
        world = next(world for world, layouts in WORLDS.items() if cell[1] in layouts)
        if world not in folders:
            folders[world] = folder = tmp_path_factory.mktemp(f"world_{world}")
            cells = [each for each in (*CELLS, *SINGLES, *PLANTED) if each[1] in WORLDS[world]]
            plans = {place(*each): replace(plan_of(*each), run_dir=str(folder / place(*each))) for each in cells}
            run_named(plans, folder, run_one)
        return folders[world] / place(*cell)

    return run_of


def place(*cell: str) -> str:
    return ", ".join(cell)


@pytest.mark.parametrize(("job", "layout"), [cell[:2] for cell in CELLS if cell[2] == FLOAT64])
def test_in_float64_it_is_single(job: str, layout: str, run_of: RunOf) -> None:
    """With weight decay by groups, clipping, accumulation, a ragged batch, a schedule, validations and a test."""
    comparison = compare(run_of(job, "single 1", FLOAT64), run_of(job, layout, FLOAT64))
    assert str(comparison.tolerance) == "within 1e-10"
    assert comparison.within_tolerance, comparison.text()
    assert comparison.max_diff < 1e-10
    quantities = {"samples", "sample ids", "gradient norm", "learning rate", "validation", "weights saved"}
    assert quantities | {"optimizer state", "schedule"} <= comparison.quantities.keys()
    assert comparison.quantities["loss"].compared >= 4


@pytest.mark.parametrize(("job", "layout"), [cell[:2] for cell in CELLS if cell[2] == FLOAT32])
def test_in_float32_it_begins_as_single(job: str, layout: str, run_of: RunOf) -> None:
    comparison = compare(run_of(job, "single 1", FLOAT32), run_of(job, layout, FLOAT32))
    assert str(comparison.tolerance) == "within 0.0001 in the first 3 steps"
    assert comparison.within_tolerance, comparison.text()


def furthest(run: Path, single: Path) -> float:
    """Return the largest difference of a loss or gradient norm of a step, relative to that of `single`."""
    values, expected = (
        torch.tensor([(line["loss_sum"], line["grad_norm"]) for line in lines(each, "step")]) for each in (run, single)
    )
    return ((values - expected).abs() / expected).max().item()


@pytest.mark.parametrize(("job", "layout"), [cell[:2] for cell in CELLS if cell[2] == BFLOAT16])
def test_in_bfloat16_it_is_near_single(job: str, layout: str, run_of: RunOf) -> None:
    assert furthest(run_of(job, layout, BFLOAT16), run_of(job, "single 1", BFLOAT16)) < BOUND


def test_in_bfloat16_a_doubled_gradient_is_far_from_single(run_of: RunOf) -> None:
    assert furthest(run_of("mlp", "fsdp 2", DOUBLED), run_of("mlp", "single 1", BFLOAT16)) > 10 * BOUND


@pytest.mark.parametrize("layout", DRIFTS)
def test_a_copy_of_a_weight_that_drifts_is_told(layout: str, run_of: RunOf) -> None:
    comparison = compare(run_of("transformer", layout, FLOAT64), run_of("transformer", layout, DRIFTED))
    assert str(comparison.quantities["ranks of one run"].first).startswith(f"epoch 1, step 1, {DRIFTS[layout]} in ")
