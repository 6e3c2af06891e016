"""The loaders of a LightningDataModule, or of the module itself."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from lockstep import schemas
from lockstep.config_error import ConfigError
from lockstep.loaders.map_loader import MapLoader
from lockstep.loaders.rank_loader import RankLoader, RankSlice
from lockstep.loaders.stream_loader import StreamLoader
from lockstep.random_state import seeded
from lockstep.targets.kinds import is_combined_loader, overrides, replace_method

STAGES = ("train", "val", "test")
METHOD = {stage: f"{stage}_dataloader" for stage in STAGES}
STEP = {"train": "training_step", "val": "validation_step", "test": "test_step"}


class LoaderSource:
    """The source of a user's loaders.

    owner: the LightningDataModule or LightningModule whose methods return them; None if there are only data sets.
    """

    def __init__(self, choice: schemas.Data, module: Any, seed: int, batch_size: int | None, owner: Any) -> None:
        self.choice, self.module, self.seed, self.batch_size = choice, module, seed, batch_size
        self.owner = owner
        methods = () if owner is None else STAGES
        self.originals: dict[str, Callable[[], Any]] = {stage: getattr(owner, METHOD[stage]) for stage in methods}

    @property
    def is_data_module(self) -> bool:
        return self.owner is not None and self.owner is not self.module

    def seed_setup(self) -> None:
        """Have `setup` of the module and of the data module draw under the run's seed, the same on every rank."""

        def setup(original: Callable[..., None], stage: str | None = None) -> None:
            seeded(self.seed, lambda: original(stage))

        for each in {id(self.module): self.module, id(self.owner): self.owner}.values():
            if hasattr(each, "setup"):
                replace_method(each, "setup", setup)
                replace_method(each, "prepare_data", lambda _: None)  # it was called before any rank started

    def has(self, stage: str) -> bool:
        """Whether there is a loader for this stage, and a step of the module that takes it."""
        has_step = self.module is None or overrides(self.module, STEP[stage])
        return has_step and self.has_loader(stage)

    def has_loader(self, stage: str) -> bool:
        return overrides(self.owner, METHOD[stage])

    def user_loaders(self, stage: str) -> list[Any]:
        """Return the loaders as the user creates them.

        Raises:
            ConfigError: training takes several at a time, or one that combines several.
        """
        returned = seeded(self.seed, self.originals[stage])
        loaders = [*returned.values()] if isinstance(returned, Mapping) else returned
        loaders = [*loaders] if isinstance(loaders, list | tuple) else [loaders]
        method = f"{type(self.owner).__name__}.{METHOD[stage]}"
        if is_combined_loader(returned):
            raise ConfigError(
                f"{method}: it returns a CombinedLoader, and only single loaders "
                f"are divided among ranks; return {'one loader' if stage == 'train' else 'a list of loaders'}."
            )
        if stage == "train" and len(loaders) != 1:
            raise ConfigError(
                f"{method}: it returns {len(loaders)} loaders at a time, and a training step takes one; write one "
                "loader."
            )
        return loaders

    def loaders(self, stage: str, rank_slice: RankSlice) -> list[RankLoader]:
        """Return loaders of this rank's slices of the user's."""
        loaders = self.user_loaders(stage)
        sizes = self._batch_sizes(stage, len(loaders))
        return [
            (MapLoader if _has_index(loader) else StreamLoader)(loader, rank_slice, self.seed, stage == "train", size)
            for loader, size in zip(loaders, sizes, strict=True)
        ]

    def _batch_sizes(self, stage: str, loaders: int) -> Sequence[int | None]:
        """Return each loader's global batch size; None keeps that of the loader.

        A loader of an evaluation has the size of a single process: a LightningDataModule may divide its batch size by
        the number of ranks.
        """
        if stage == "train":
            return [self.batch_size if getattr(self.choice, "regular", True) else None]
        sizes = () if self.owner is None else getattr(self.choice, f"{stage}_batch_sizes", ())
        return [size or None for size in sizes] if len(sizes) == loaders else [None] * loaders


def _has_index(loader: Any) -> bool:
    """Whether it is a DataLoader that makes batches of a map-style data set."""
    is_map = isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)
    return is_map and loader.batch_sampler is not None
