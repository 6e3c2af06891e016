"""Where the batches of a run come from: a user's loaders, or data sets with a loader for each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from lockstep import data, schemas
from lockstep.config_error import ConfigError, config_error
from lockstep.data.tensors import STAGES, Split
from lockstep.loaders.map_loader import MapLoader
from lockstep.loaders.rank_loader import RankLoader, RankSlice
from lockstep.loaders.stream_loader import StreamLoader
from lockstep.random_state import seeded
from lockstep.schemas.data import BATCH_SIZE
from lockstep.schemas.target import KEY
from lockstep.targets.kinds import is_combined_loader, is_data_module, overrides, replace_method

METHOD = {stage: f"{stage}_dataloader" for stage in STAGES}
STEP = {"train": "training_step", "val": "validation_step", "test": "test_step"}


@dataclass
class LoaderSource:
    """The source of a user's loaders.

    create: functions that return the loaders of a stage, as `train_dataloader` does.
    owner: the LightningDataModule or LightningModule whose methods they are; None if there are only data sets.
    """

    choice: schemas.Data
    module: Any
    seed: int
    batch_size: int | None
    create: Mapping[str, Callable[[], Any]]
    owner: Any = None

    @property
    def data_module(self) -> Any:
        return self.owner if self.owner is not self.module else None

    def seed_setup(self) -> None:
        """Have `setup` of the module and of the data module draw under the run's seed, the same on every rank."""

        def setup(original: Callable[..., None], stage: str | None = None) -> None:
            seeded(self.seed, lambda: original(stage))

        for each in (self.module, self.data_module):
            if hasattr(each, "setup"):
                replace_method(each, "setup", setup)
                replace_method(each, "prepare_data", lambda _: None)  # it was called before any rank started

    def has(self, stage: str) -> bool:
        """Whether there is a loader for this stage, and a step of the module that takes it."""
        return stage in self.create and (self.module is None or overrides(self.module, STEP[stage]))

    def user_loaders(self, stage: str) -> list[Any]:
        returned = seeded(self.seed, self.create[stage])
        loaders = [*returned.values()] if isinstance(returned, Mapping) else returned
        loaders = [*loaders] if isinstance(loaders, list | tuple) else [loaders]
        if is_combined_loader(returned) or (stage == "train" and len(loaders) != 1):
            kind = "a CombinedLoader" if is_combined_loader(returned) else f"{len(loaders)} loaders at a time"
            raise ConfigError(
                f"{type(self.owner).__name__}.{METHOD[stage]}: it returns {kind}, and only single loaders are divided "
                f"among ranks; return {'one loader' if stage == 'train' else 'a list of loaders'}."
            )
        return loaders

    def loaders(self, stage: str, rank_slice: RankSlice) -> list[RankLoader]:
        """Return loaders of this rank's slices of the user's."""
        loaders: list[RankLoader] = []
        user_loaders = self.user_loaders(stage)
        for loader, size in zip(user_loaders, self._batch_sizes(stage, len(user_loaders)), strict=True):
            has_index = isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)
            kind = MapLoader if has_index and loader.batch_sampler is not None else StreamLoader
            loaders.append(kind(loader, rank_slice, self.seed, stage == "train", size))
        return loaders

    def _batch_sizes(self, stage: str, loaders: int) -> Sequence[int | None]:
        """Return each loader's global batch size; None keeps that of the loader.

        A loader of an evaluation has the size of a single process: a LightningDataModule may divide its batch size by
        the number of ranks.
        """
        if stage == "train":
            return [self.batch_size if getattr(self.choice, "regular", True) else None]
        sizes = () if self.owner is None else getattr(self.choice, f"{stage}_batch_sizes", ())
        return [size or None for size in sizes] if len(sizes) == loaders else [None] * loaders


def create_source(choice: schemas.Data, module: Any, seed: int, batch_size: int | None) -> LoaderSource:
    """Return the source of the loaders of a module, which may be created later, or of a plain net's loaders."""
    owner = module
    if not isinstance(choice, schemas.Loaders):
        splits = data.load(choice, seed, samples="module")
        datasets = {
            stage: dataset.as_dataset() if isinstance(dataset, Split) else dataset
            for stage, dataset in splits.datasets.items()
        }
        return dataset_source(choice, module, seed, batch_size, datasets, splits.loader)
    if isinstance(choice, schemas.UserLoaders):
        from lockstep.data.user_data import create_data, streams_of

        owner = create_data(choice, seed)
        if streams := streams_of(choice, owner):
            return dataset_source(choice, module, seed, batch_size, *streams)
        if not is_data_module(owner):
            reason = f"it makes a {type(owner).__name__}, and not a LightningDataModule"
            raise config_error(f"data.{KEY}", choice.call[KEY], reason, "the path of a LightningDataModule")
    methods = {stage: getattr(owner, name) for stage, name in METHOD.items() if overrides(owner, name)}
    return LoaderSource(choice, module, seed, batch_size, methods, owner)


def dataset_source(
    choice: schemas.Data,
    module: Any,
    seed: int,
    batch_size: int | None,
    datasets: Mapping[str, Any],
    options: Mapping[str, Any],
) -> LoaderSource:
    """Return a source of a DataLoader with these options for each data set that has samples."""

    def create(stage: str) -> "DataLoader[Any]":
        shuffle = stage == "train" and not isinstance(datasets[stage], IterableDataset)
        return DataLoader(datasets[stage], batch_size=batch_size or BATCH_SIZE, shuffle=shuffle, **options)

    functions = {
        stage: lambda stage=stage: create(stage)
        for stage, dataset in datasets.items()
        if isinstance(dataset, IterableDataset) or len(dataset) > 0
    }
    return LoaderSource(choice, module, seed, batch_size, functions)
