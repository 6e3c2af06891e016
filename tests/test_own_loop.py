"""The fast loop computes what Lightning's own loop does, by which engine=both trains."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lockstep.engine.loop import FastTrainingEpochLoop
from lockstep.plan.plan import Plan
from lockstep.runs.compare import compare
from tests.comparing import require_identical
from tests.conftest import IN_PROCESS
from tests.inspections import plan_here
from tests.rank_helpers import run_plans
from tests.test_parity_matrix import COMMON, JOBS

KINDS = {"fast": "engine.fast_loop=true", "own": "engine.fast_loop=false"}
FEW = ("linear", "mlp", "lenet", "cnn", "split")
WORLDS = [("single", 1), ("ddp", 2), ("ddp", 3), ("ddp_spawn", 2), ("fsdp", 3), ("dp", 3), ("model_parallel", 2)]
pytestmark = [*IN_PROCESS, pytest.mark.timeout(900)]


def plans_of(jobs: Sequence[str], folder: Path, *world: str) -> list[Plan]:
    return [
        plan_here([*COMMON, *JOBS[job], *world, word], folder / job / kind)
        for job in jobs
        for kind, word in KINDS.items()
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "devices"), WORLDS)
def test_the_fast_loop_computes_the_same(strategy: str, devices: int, tmp_path: Path) -> None:
    jobs = ("split",) if strategy == "model_parallel" else FEW
    run_plans(plans_of(jobs, tmp_path, f"strategy={strategy}", f"devices={devices}"), tmp_path)
    for job in jobs:
        require_identical(tmp_path / job / "fast", tmp_path / job / "own")


def test_an_error_of_the_fast_loop_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = FastTrainingEpochLoop._step

    def wrong(loop: FastTrainingEpochLoop, batch: Any, batch_idx: int) -> dict[str, Any]:
        loop.trainer.optimizers[0].param_groups[0]["momentum"] = 0.8
        return step(loop, batch, batch_idx)

    monkeypatch.setattr(FastTrainingEpochLoop, "_step", wrong)
    run_plans(plans_of(["linear"], tmp_path), tmp_path)
    assert compare(tmp_path / "linear" / "fast", tmp_path / "linear" / "own").verdict != "identical"
