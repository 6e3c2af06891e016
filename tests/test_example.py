"""The net learns its data, and two ranks do in each step what one does."""

from pathlib import Path

import pytest

from lockstep import run
from lockstep.compare import compare

ROOT = Path(__file__).parents[1]
CONFIGS = f"hydra.searchpath=[file://{ROOT / 'conf'}]"
JOB = (CONFIGS, "model=example", "data=example", "max_epochs=5", "optimizer.lr=0.01", "logger=none")


def test_two_ranks_learn_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    worlds = {"one": ["strategy=single"], "two": ["strategy=ddp", "devices=2"]}
    for name, world in worlds.items():
        folder = f"hydra.run.dir={tmp_path / name}"
        metrics = run([*JOB, *world, folder, "engine=raw", "precision=64-true"])
        assert float(metrics["test/acc"]) > 0.9
    verdict = compare(tmp_path / "one", tmp_path / "two")
    assert verdict.within_tolerance, verdict.text()
