"""A user's iterable: every rank has to read the same samples."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from lockstep.base.config_error import ConfigError
from lockstep.engine.loaders import RankSlice, seeded
from lockstep.engine.loaders.stream_loader import StreamLoader, fingerprint
from tests.comparing import metrics_in, require_close
from tests.conftest import MakeUserPlan
from tests.test_user_module import DDP, trained

CLOCK = ("model=regressor", "data=stream", "data._target_=strange_loaders.ByClockData")


def test_ranks_that_read_different_samples_are_rejected(make_user_plan: MakeUserPlan, tmp_path: Path) -> None:
    """Before the first step: each would see some samples twice and others never."""
    with pytest.raises(ConfigError, match=r"^data: ranks read different samples from it, .*; write one that reads the"):
        trained(make_user_plan(*CLOCK, *DDP))
    assert "step" not in (tmp_path / "run" / "record.jsonl").read_text()


def test_a_loader_with_an_iterator_of_its_own(make_user_plan: MakeUserPlan) -> None:
    """Its batches are trained on as it yields them, and divided among ranks by samples."""

    def run(by: str, *world: str) -> Path:
        job = ("model=regressor", "data=stream", "data._target_=strange_loaders.DoubledData", f"+data.by={by}")
        return trained(make_user_plan(*job, "precision=64-true", *world, folder=f"{by}-{len(world)}"))

    by_loader, by_data = run("loader"), run("data")
    assert metrics_in(by_loader)["digest"] == metrics_in(by_data)["digest"] != metrics_in(run("neither"))["digest"]
    assert metrics_in(by_loader)["val_loss"] == pytest.approx(metrics_in(by_data)["val_loss"], rel=1e-12)
    require_close(by_loader, run("loader", *DDP))


class Masks(IterableDataset[bool]):
    """Whether the signals of the group were blocked as a worker started."""

    seen: ClassVar[list[bool]] = []

    def __iter__(self) -> Iterator[bool]:
        return iter(self.seen)


def test_workers_of_a_stream_start_with_blocked_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal to the group would end one that has not left it yet."""

    def init(*_: object) -> None:
        Masks.seen.append(signal.pthread_sigmask(signal.SIG_BLOCK, []) >= {*seeded.GROUP_SIGNALS})

    monkeypatch.setattr(seeded, "_init_worker", init)
    loader = StreamLoader(DataLoader(Masks(), num_workers=1), RankSlice(0, 1), 0, training=True, batch_size=1)
    assert [batch.tolist() for batch in loader] == [[True]]


def test_a_fingerprint_is_of_values() -> None:
    def batch(last: float = 2.0) -> object:
        return [(torch.ones(2, 3).t(), 1, "a"), {"x": np.array([1.0, last]), "y": None}, torch.tensor(True), object()]

    assert fingerprint(batch()) == fingerprint(batch())
    assert fingerprint(batch()) != fingerprint(batch(3.0))
    assert fingerprint(torch.ones(2, dtype=torch.bfloat16)) != fingerprint(torch.zeros(2, dtype=torch.bfloat16))
