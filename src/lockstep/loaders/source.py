"""What a rank asks of the source of its batches: built-in data, a LightningDataModule, or the module itself."""

from collections.abc import Sequence
from typing import Any, Protocol

from lockstep.loaders.rank_loader import RankLoader, RankSlice

STAGES = ("train", "val", "test")
METHOD = {stage: f"{stage}_dataloader" for stage in STAGES}
STEP = {"train": "training_step", "val": "validation_step", "test": "test_step"}


class Source(Protocol):
    """`owner`: the LightningDataModule or the module whose dataloader methods are asked; None without one."""

    owner: Any

    @property
    def is_data_module(self) -> bool: ...
    def seed_setup(self) -> None: ...
    def has(self, stage: str) -> bool: ...
    def loaders(self, stage: str, rank_slice: RankSlice) -> list[RankLoader]: ...
    def require_samples(self, stage: str, loaders: Sequence[RankLoader], ranks: int) -> None: ...
