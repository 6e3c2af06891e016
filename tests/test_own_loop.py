"""Lightning's own loop computes the same as the fast one."""

from pathlib import Path
from typing import Any

import pytest

from lockstep.compare import compare
from lockstep.lit.loop import FastTrainingEpochLoop
from tests.comparing import require_identical
from tests.conftest import IN_PROCESS
from tests.rank_helpers import run_plans
from tests.test_parity_matrix import JOBS, WORLDS, jobs_of, plan_of

OWN, FAST = ("engine.fast_loop=false",), ("engine.fast_loop=true",)
pytestmark = [*IN_PROCESS, pytest.mark.timeout(900)]


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "devices"), WORLDS)
def test_the_fast_loop_computes_the_same(strategy: str, devices: int, tmp_path: Path) -> None:
    kinds, jobs = {"fast": FAST, "own": OWN}, jobs_of(strategy)
    run_plans(
        [
            plan_of(options, strategy, devices, *more, folder=tmp_path / job / kind)
            for job, options in jobs.items()
            for kind, more in kinds.items()
        ],
        tmp_path,
    )
    for job in jobs:
        require_identical(tmp_path / job / "fast", tmp_path / job / "own")


def test_an_error_of_the_fast_loop_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = FastTrainingEpochLoop._step

    def wrong(loop: FastTrainingEpochLoop, batch: Any, batch_idx: int) -> dict[str, Any]:
        loop.trainer.optimizers[0].param_groups[0]["momentum"] = 0.8
        return step(loop, batch, batch_idx)

    monkeypatch.setattr(FastTrainingEpochLoop, "_step", wrong)
    kinds = {"fast": FAST, "own": OWN}
    run_plans(
        [plan_of(JOBS["linear"], "single", 1, *more, folder=tmp_path / kind) for kind, more in kinds.items()], tmp_path
    )
    assert compare(tmp_path / "fast", tmp_path / "own").verdict != "identical"
