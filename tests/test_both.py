"""engine=both: the verdict on the terminal, in comparison.json, in metrics.json, and as exit status."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import lockstep
from tests.comparing import metrics_in
from tests.conftest import ROOT, Command
from tests.zygote import zygote

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
    for name, more in (("lightning", {"tensorboard"}), ("raw", set())):
        folder = ended.run_dir / name
        assert {"config.yaml", "record.jsonl", "metrics.json", *more} <= {path.name for path in folder.iterdir()}
        assert (folder / "checkpoints" / "last.ckpt").is_file()
        assert lockstep.load(folder).training is False


@pytest.mark.slow
def test_under_torchrun(command: Command) -> None:
    start = (sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", str(ROOT / "train.py"))
    ended = command(*start, "strategy=ddp", "devices=2", "engine=both", *QUICK, **zygote().for_scripts)
    assert ended.status == 0, ended.err
    assert read(ended.run_dir / "comparison.json")["verdict"] == "identical"
    assert ended.out.count("identical; expected: identical") == 1, "rank 0 alone speaks"


APART = """
import runpy, sys
from lockstep.command import job
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
def test_raw_runs_another_strategy_in_place(command: Command) -> None:
    words = ("strategy=dp", "devices=2", "batch_size_per_device=6", "scale_lr=true")
    ended = command.train("engine=both", "precision=64-true", *QUICK[:-1], *words)
    assert (ended.status, ended.err) == (0, ""), ended.err
    assert "raw ran strategy=single devices=1, in place of strategy=dp" in ended.out
    assert "expected: within 1e-10" in ended.out
    assert 0 <= metrics_in(ended.run_dir)["max_diff"] < 1e-10
