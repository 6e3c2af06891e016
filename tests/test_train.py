"""The command as a user types it: real processes, their exit status, what they print, write and leave running."""

import re
import sys

import pytest
import torch

from tests.comparing import metrics_in
from tests.conftest import ROOT, Command, events_of

METRICS_KEYS = {
    *("engine", "strategy", "devices", "world_size", "model", "data", "seed", "precision", "batch_size"),
    *("epochs", "steps", "train_seconds", "total_seconds", "samples_per_second", "digest"),
    *("train/loss", "train/acc", "val/loss", "val/acc", "val/f1", "test/loss", "test/acc", "test/f1"),
}


def test_the_main_job(command: Command) -> None:
    """Also .ci/run types it, in a fresh environment."""
    ended = command.train("strategy=ddp", "devices=2", "max_epochs=3")
    assert ended.status == 0, ended.err
    assert ended.err == ""
    metrics = metrics_in(ended.run_dir)
    assert metrics.keys() >= METRICS_KEYS
    assert metrics["test/acc"] >= 0.9
    assert (metrics["strategy"], metrics["world_size"]) == ("ddp", 2)
    title = f"MLP on Digits, ddp × 2, lightning, cpu: {ended.run_dir.relative_to(command.folder)}\n"
    assert ended.out.startswith(title)
    assert f"  {ended.run_dir}" in ended.out.splitlines()[-1]
    assert re.search(rf"\n  test +acc {metrics['test/acc']:.4g}, .*loss ", ended.out)
    assert len(re.findall(r"^epoch \d/3 .*val/acc", ended.out, re.MULTILINE)) == 3
    entries = {path.name for path in ended.run_dir.iterdir()}
    files = {"config.yaml", "confusion.csv", "metrics.json", "record.jsonl", "report.html", "report.json"}
    assert entries == files | {"checkpoints", "ranks", "tensorboard"}
    events = events_of(ended.run_dir)
    assert len(events.Scalars("val/acc")) == 3
    checkpoint = torch.load(ended.run_dir / "checkpoints" / "last.ckpt", weights_only=True)
    assert checkpoint["global_step"] == metrics["steps"] == 60
    assert not any("module." in key for key in checkpoint["state_dict"])
    assert "devices: 2" in (ended.run_dir / "config.yaml").read_text()


@pytest.mark.fresh
def test_help_explains_and_imports_no_torch(command: Command) -> None:
    probe = "import sys; sys.argv = ['train.py', '--help']; import runpy, atexit; "
    probe += "atexit.register(lambda: print('torch imported:', 'torch' in sys.modules)); "
    ended = command(sys.executable, "-c", probe + f"runpy.run_path({str(ROOT / 'train.py')!r}, run_name='__main__')")
    assert ended.status == 0
    examples = ended.out.split("\n\n")[1].splitlines()
    assert [line.split()[0] for line in examples] == ["train", "compare", "sweep", "own", "test"]
    assert max(map(len, examples)) <= 80
    assert "_target_" not in ended.out
    for word in ("ddp_spawn", "batch_size_per_device", "split_cnn", "optimized_metric", "torch imported: False"):
        assert word in ended.out
