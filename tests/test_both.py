"""engine=both: the verdict on the terminal, in comparison.json, in metrics.json, and as exit status."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.comparing import metrics_in
from tests.conftest import ROOT, Command

QUICK = (
    "threads=1",
    "max_epochs=2",
    "model.net.hidden=[16]",
    "data.test_size=1655",
    "data.val_size=12",
    "batch_size=12",
)


def read(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text())
    return values


def test_the_engines_agree(command: Command) -> None:
    ended = command.train("engine=both", *QUICK, "strategy=ddp", "devices=2")
    assert (ended.status, ended.err) == (0, "")
    assert "identical; expected: identical" in ended.out
    metrics, comparison = metrics_in(ended.run_dir), read(ended.run_dir / "comparison.json")
    wanted = {"engine": "both", "verdict": "identical", "within_tolerance": True, "max_diff": 0}
    assert {key: metrics[key] for key in wanted} == wanted
    wanted = {"verdict": "identical", "tolerance": "identical", "first_divergence": None}
    assert {key: comparison[key] for key in wanted} == wanted
    assert comparison["quantities"]["loss"]["compared"] == 22
    assert {"validation", "test", "parameters and buffers"} <= comparison["quantities"].keys()
    digests = [metrics_in(ended.run_dir / name)["digest"] for name in ("lightning", "raw")]
    assert digests == [metrics["digest"]] * 2
    for name in ("lightning", "raw"):
        folder = ended.run_dir / name
        assert {"config.yaml", "record.jsonl", "tensorboard"} <= {path.name for path in folder.iterdir()}
        assert (folder / "checkpoints" / "best.ckpt").is_file()


@pytest.mark.slow
def test_under_torchrun(command: Command) -> None:
    start = (sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", str(ROOT / "train.py"))
    ended = command(*start, "strategy=ddp", "devices=2", "engine=both", *QUICK)
    assert ended.status == 0, ended.err
    assert read(ended.run_dir / "comparison.json")["verdict"] == "identical"
    assert ended.out.count("identical; expected: identical") == 1, "rank 0 alone speaks"


APART = """
import runpy, sys
from lockstep import job
job.ENGINES["raw"] = "tests.engine_wrong_seed"
sys.argv = [{script!r}, *sys.argv[1:]]
runpy.run_path({script!r}, run_name="__main__")
"""


def test_engines_that_are_apart(command: Command) -> None:
    code = APART.format(script=str(ROOT / "train.py"))
    ended = command(sys.executable, "-c", code, "engine=both", *QUICK, PYTHONPATH=f"{ROOT / 'src'}:{ROOT}")
    assert ended.status == 1
    assert ended.err == ""
    assert "They differ first in configuration, metrics.json, seed: 42 against 43" in ended.out
    assert metrics_in(ended.run_dir)["within_tolerance"] is False
    comparison = read(ended.run_dir / "comparison.json")
    assert "seed: 42 against 43" in comparison["first_divergence"]
    assert comparison["quantities"]["sample ids"]["first_divergence"].startswith("epoch 1, step 1, ids: ")


@pytest.mark.slow
def test_engines_that_are_apart_in_a_sweep(command: Command) -> None:
    code = APART.format(script=str(ROOT / "train.py"))
    ended = command(
        sys.executable, "-c", code, "-m", "engine=both,lightning", *QUICK, PYTHONPATH=f"{ROOT / 'src'}:{ROOT}"
    )
    assert ended.status == 1
    assert "engines differ" in ended.out
    assert "sweep: 2 finished, 0 refused, 0 failed" in ended.out


def test_a_checkpoint_is_tested_by_both(command: Command) -> None:
    trained = command.train("engine=raw", "checkpoint.monitor=val/loss", "checkpoint.mode=max", "test=best", *QUICK)
    [best] = trained.folder.glob("logs/train/*/checkpoints/best.ckpt")
    ended = command.train("engine=both", "train=false", f"ckpt_path={best}", "name=tested", *QUICK)
    assert (ended.status, ended.err) == (0, "")
    [comparison] = command.folder.glob("logs/tested/*/comparison.json")
    assert {"test", "digest"} <= read(comparison)["quantities"].keys()
    assert read(comparison)["verdict"] == "identical"
    metrics, tested = read(best.parents[1] / "metrics.json"), read(comparison.with_name("metrics.json"))
    assert (metrics["best_epoch"], metrics["test/loss"]) == (1, tested["test/loss"])
    assert "in epoch 1; tested: this net" in trained.out
