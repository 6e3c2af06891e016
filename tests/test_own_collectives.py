"""A collective in the step of an evaluation, where a rank may have no sample: refused before the first step."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from lockstep.config_error import ConfigError
from lockstep.loaders.step_collectives import collective_in
from lockstep.schemas.engine import ENGINES
from tests.conftest import MakeOwn
from tests.test_own_module import DDP, trained


@pytest.mark.parametrize("engine", ENGINES)
def test_no_rank_waits_for_one_without_samples(engine: str, make_own: MakeOwn, tmp_path: Path) -> None:
    job = ("model=autoencoder", "data=blobs", "batch_size=12", "max_epochs=1", f"engine={engine}", *DDP)
    with pytest.raises(ConfigError) as refused:
        trained(make_own(*job, "+data.split.val=13"))
    assert str(refused.value) == (
        "data=blobs: a batch for AutoEncoder.validation_step has samples for 1 of 2 ranks, and it calls all_gather, in "
        "which the others take no part; write a batch size that leaves a sample for each rank in the last batch."
    )
    assert not list(tmp_path.glob("run/checkpoints/*.ckpt"))


class Net:
    def direct(self) -> None:
        dist.all_reduce(torch.ones(()))

    def by_another(self) -> Any:
        return self.shared(1)

    def shared(self, depth: int) -> Any:
        return self.by_another() if depth else dist.barrier()

    def none(self) -> Any:
        return self.absent() or len("all_gather")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("step", "found"), [("direct", "all_reduce"), ("by_another", "barrier"), ("none", None), ("absent", None)]
)
def test_what_a_step_calls(step: str, found: str | None) -> None:
    assert collective_in(Net, step) == found
