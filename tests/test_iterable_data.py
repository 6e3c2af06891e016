"""A user's iterable: every rank has to read the same samples."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lockstep.config_error import ConfigError
from lockstep.loaders.batch_slices import fingerprint
from tests.conftest import MakeUserPlan
from tests.test_user_module import DDP, trained

CLOCK = ("model=regressor", "data=stream", "data._target_=strange_loaders.ByClockData", "engine=raw")


def test_ranks_that_read_different_samples_are_rejected(make_user_plan: MakeUserPlan, tmp_path: Path) -> None:
    """Before the first step: each would see some samples twice and others never."""
    with pytest.raises(ConfigError, match=r"^data: ranks read different samples from it, .*; write one that reads the"):
        trained(make_user_plan(*CLOCK, *DDP))
    assert "step" not in (tmp_path / "run" / "record.jsonl").read_text()


def test_a_fingerprint_is_of_values() -> None:
    def batch(last: float = 2.0) -> object:
        return [(torch.ones(2, 3).t(), 1, "a"), {"x": np.array([1.0, last]), "y": None}, torch.tensor(True), object()]

    assert fingerprint(batch()) == fingerprint(batch())
    assert fingerprint(batch()) != fingerprint(batch(3.0))
    assert fingerprint(torch.ones(2, dtype=torch.bfloat16)) != fingerprint(torch.zeros(2, dtype=torch.bfloat16))
