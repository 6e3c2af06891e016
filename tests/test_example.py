"""The net and the LightningModule learn their data, and two ranks compute in each step what one does."""

from pathlib import Path

import pytest

from lockstep import run
from lockstep.runs.compare import compare

ROOT = Path(__file__).parents[1]
CONFIGS = f"hydra.searchpath=[file://{ROOT / 'conf'}]"
NET = ("model=example", "data=example", "optimizer.lr=0.01")
MODULE = ("model=example_module", "data=example_module", "optimizer=example")


@pytest.mark.parametrize("user_code", [NET, MODULE])
def test_two_ranks_learn_what_one_does(
    user_code: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    job = (CONFIGS, *user_code, "max_epochs=5", "precision=64-true", "logger=none")
    for name, world in {
        "one": ["strategy=single", "strategy.in_process=true"],
        "two": ["strategy=ddp", "devices=2"],
    }.items():
        metrics = run([*job, *world, f"hydra.run.dir={tmp_path / name}"])
        assert float(metrics["test/acc"]) > 0.9
    verdict = compare(tmp_path / "one", tmp_path / "two")
    assert verdict.within_tolerance, verdict.text()
