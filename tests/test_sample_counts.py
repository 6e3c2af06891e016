"""A configuration with another number of samples than the data has is rejected before the first step."""

from pathlib import Path

import pytest
import torch

from lockstep import data, schemas
from lockstep.config_error import ConfigError
from lockstep.data import digits
from lockstep.data.tensors import TensorData, split_three
from lockstep.launch.topology import RankContext
from tests.conftest import MakePlan
from tests.rank_helpers import ENGINES

ALONE = RankContext(rank=0, world_size=1, local_rank=0, local_world_size=1)
QUICK = ("accelerator=cpu", "threads=1", "logger=none", "max_epochs=1", "model.hidden=[4]")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_is_rejected(engine: str, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas.Digits, "total", 1500)  # 1,500 less 180 and 360
    plan = make_plan(*QUICK)
    with pytest.raises(ConfigError) as raised:
        ENGINES[engine](plan, ALONE)
    assert str(raised.value) == (
        "data=digits: its train split holds 1257 samples, and Digits.train_samples says 960; "
        "write what is loaded into train_samples, in lockstep/schemas/data.py."
    )
    assert not (Path(plan.run_dir) / "record.jsonl").exists()


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ((1256, 181, 360), "its train split holds 1256 samples, and Digits.train_samples says 1257;"),
        ((1257, 179, 361), "its validation split holds 179 samples, and Digits.val_size says 180;"),
        ((1257, 180, 0), "its test split holds 0 samples, and Digits.test_size says 360;"),
    ],
)
def test_each_split_is_counted(sizes: tuple[int, int, int], reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(val_size: int, test_size: int) -> TensorData:
        rows = torch.zeros(sum(sizes), 1)
        return TensorData(*split_three(rows, rows, *sizes[1:]), outputs=10)

    monkeypatch.setattr(digits, "load", load)
    with pytest.raises(ConfigError, match=reason):
        data.load(schemas.Digits("digits", val_size=180, test_size=360))
