"""Comparing what runs leave beside their records: files that were altered, and best.ckpt."""

from pathlib import Path

import pytest
import torch

from lockstep.runs.compare import compare
from tests import test_compare
from tests.test_compare import first_of

two_runs, copied = test_compare.two_runs, test_compare.copied


@pytest.mark.parametrize(
    ("file", "old", "new", "where"),
    [
        ("config.yaml", "devices: 3", "devices: 2", "config.yaml, devices"),
        ("config.yaml", "  name: ddp", "  nam: ddp", "config.yaml, strategy"),
        ("metrics.json", '"precision"', '"precisions"', "metrics.json, precision"),
    ],
)
def test_files_that_contradict_the_record_of_their_run_are_detected(
    file: str, old: str, new: str, where: str, copied: Path
) -> None:
    """Two worlds may differ in these values."""
    path = copied / "ddp" / file
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    comparison = compare(copied / "single", copied / "ddp")
    assert first_of(comparison) == ("files of one run", f"{where} in {copied / 'ddp'}: ")
    assert not compare(copied / "ddp", copied / "ddp").within_tolerance


def test_best_checkpoints_are_compared(copied: Path, two_runs: Path) -> None:
    """By their weights, if they are of the same epoch, and by that epoch if the runs should be identical."""
    best = copied / "single" / "checkpoints" / "best.ckpt"
    state = torch.load(best, weights_only=True)
    state["state_dict"]["net.layers.2.bias"][3] += 0.25
    best.unlink()
    torch.save(state, best)
    comparison = compare(two_runs / "single", copied / "single")
    assert first_of(comparison) == ("best weights", "best.ckpt, state_dict.net.layers.2.bias: ")
    state["lockstep"]["best"] = ("val/acc", 0.5, 7)
    torch.save(state, best)
    assert first_of(compare(two_runs / "single", copied / "single", 0.0)) == ("best epoch", "best.ckpt, epoch: ")
    assert compare(two_runs / "ddp", copied / "single").within_tolerance, "a tie may go either way"
    best.write_bytes(b"half a file")
    assert first_of(compare(two_runs / "single", copied / "single"))[0] == "best.ckpt"
    best.unlink()
    assert first_of(compare(two_runs / "single", copied / "single"))[0] == "best.ckpt"
