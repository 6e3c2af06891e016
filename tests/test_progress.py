from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from lockstep import progress
from lockstep.progress import Points, epoch_line


def test_the_line_of_an_epoch() -> None:
    line = epoch_line(3, 20, {"val/acc": 0.97222, "train/loss": 0.12344}, 0.314)
    assert line == "epoch 3/20  train/loss 0.1234  val/acc 0.9722  0.31 s"


def test_points_reach_the_curves_in_their_order(tmp_path: Path) -> None:
    """Nothing is written one by one; what waits is on the disk after a flush."""
    writer = SummaryWriter(str(tmp_path))
    points = Points(writer)
    for step in (10, 20, 30):
        points.add({"train/loss": 1 / step, "lr": 0.5}, step)
    assert len(points.waiting) == 3
    points.flush()
    assert not points.waiting
    found = EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, round(event.value, 6)) for event in found.Scalars("train/loss")] == [
        (10, 0.1),
        (20, 0.05),
        (30, 0.033333),
    ]
    assert [event.value for event in found.Scalars("lr")] == [0.5, 0.5, 0.5]
    writer.close()


def test_points_do_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FLUSH_SECONDS", 0.0)
    writer = SummaryWriter(str(tmp_path))
    points = Points(writer)
    points.add({"lr": 0.5}, 1)
    assert not points.waiting
    writer.close()
