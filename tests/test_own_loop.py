"""Lightning's own loop, by which engine=both trains: identical to the raw engine, and to the fast loop."""

from pathlib import Path
from typing import Any

import pytest

from lockstep import run
from lockstep.compare import compare
from lockstep.lit.loop import FastTrainingEpochLoop
from tests.comparing import require_identical
from tests.conftest import IN_PROCESS, ROOT
from tests.rank_helpers import run_plans
from tests.test_parity_matrix import COMMON, DIGITS, JOBS, WORLDS, jobs_of, plan_of

OWN, FAST, RAW = ("engine.fast_loop=false",), ("engine.fast_loop=true",), ("engine=raw",)
CNN, FEW = "model=cnn", "trainer.limit_train_batches=3"
MODULE = (f"hydra.searchpath=[file://{ROOT / 'conf'}]", "model=example_module", "data=example_module")
BOTH = {
    "mlp": ("model=mlp", *DIGITS),
    "cnn": (CNN, *DIGITS, FEW, "strategy=ddp", "devices=2"),
    "module": (*MODULE, "batch_size=null", "strategy=ddp", "devices=2"),
    "accumulated": (
        *("model=mlp", "data=digits", "strategy=ddp", "devices=2", "precision=64-true", "batch_size=60"),
        *("accumulate_grad_batches=3", "gradient_clip_val=0.5"),
    ),
    "ragged": ("model=mlp", "data=points", "data.samples=101", "batch_size=9", "strategy=ddp", "devices=3"),
    "fsdp": (CNN, *DIGITS, FEW, "strategy=fsdp", "devices=2"),
    "virtual": ("model=lenet", *DIGITS, "strategy=virtual", "devices=2"),
}
pytestmark = [*IN_PROCESS, pytest.mark.timeout(900)]


def both(folder: Path, *words: str) -> None:
    result = run([*COMMON, *words, "engine=both", f"hydra.run.dir={folder}"])
    assert result["verdict"] == "identical", (folder / "comparison.json").read_text()
    assert "fast_loop: false" in (folder / "lightning" / "config.yaml").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", BOTH)
def test_engine_both_is_identical(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "src"))
    both(tmp_path, *BOTH[name])


@pytest.mark.slow
def test_resumed_within_an_epoch(tmp_path: Path) -> None:
    words = ("model=mlp", *DIGITS, "accumulate_grad_batches=2", "strategy=ddp", "devices=2")
    run([*COMMON, *words, "trainer.max_steps=2", f"hydra.run.dir={tmp_path / 'begun'}"])
    both(tmp_path / "resumed", *words, f"ckpt_path={tmp_path / 'begun' / 'checkpoints' / 'last.ckpt'}")


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
    kinds = {"fast": FAST, "own": OWN, "raw": RAW}
    run_plans(
        [plan_of(JOBS["linear"], "single", 1, *more, folder=tmp_path / kind) for kind, more in kinds.items()], tmp_path
    )
    assert compare(tmp_path / "fast", tmp_path / "own").verdict != "identical"
    require_identical(tmp_path / "own", tmp_path / "raw")
