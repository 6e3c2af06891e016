"""A user's iterable: every rank has to read the same samples."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lockstep.base.config_error import ConfigError
from lockstep.engine.loaders.stream_loader import fingerprint
from tests.comparing import metrics_in, require_close
from tests.conftest import MakeUserPlan, require_refused
from tests.test_user_module import DDP, trained

CLOCK = ("model=regressor", "data=stream", "data._target_=strange_loaders.ByClockData")


def test_ranks_that_read_different_samples_are_rejected(make_user_plan: MakeUserPlan, tmp_path: Path) -> None:
    """Before the first step: each would see some samples twice and others never."""
    with pytest.raises(ConfigError, match=r"^data: ranks read different samples from it, .*; write one that reads the"):
        trained(make_user_plan(*CLOCK, *DDP))
    assert "step" not in (tmp_path / "run" / "record.jsonl").read_text()


@pytest.mark.slow
def test_a_loader_with_an_iterator_of_its_own(make_user_plan: MakeUserPlan) -> None:
    """Its batches are trained on as it yields them, and divided among ranks by samples."""

    def run(by: str, *world: str) -> Path:
        job = ("model=regressor", "data=stream", "data._target_=strange_loaders.DoubledData", f"+data.by={by}")
        return trained(make_user_plan(*job, "precision=64-true", *world, folder=f"{by}-{len(world)}"))

    by_loader, by_data = run("loader"), run("data")
    assert metrics_in(by_loader)["digest"] == metrics_in(by_data)["digest"] != metrics_in(run("neither"))["digest"]
    assert metrics_in(by_loader)["val_loss"] == pytest.approx(metrics_in(by_data)["val_loss"], rel=1e-12)
    require_close(by_loader, run("loader", *DDP))


def test_a_share_of_an_unknown_number_of_batches_is_refused(make_user_plan: MakeUserPlan) -> None:
    sentence = "trainer.limit_train_batches=0.5: it leaves none of an unknown number of batches; write trainer.limit_"
    require_refused(sentence, make_user_plan, "model=regressor", "data=stream", "trainer.limit_train_batches=0.5")


def test_a_fingerprint_is_of_values() -> None:
    def batch(last: float = 2.0) -> object:
        return [(torch.ones(2, 3).t(), 1, "a"), {"x": np.array([1.0, last]), "y": None}, torch.tensor(True), object()]

    assert fingerprint(batch()) == fingerprint(batch())
    assert fingerprint(batch()) != fingerprint(batch(3.0))
    assert fingerprint(torch.ones(2, dtype=torch.bfloat16)) != fingerprint(torch.zeros(2, dtype=torch.bfloat16))
