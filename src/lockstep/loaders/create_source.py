"""Choose where the batches of a run come from: the user's loaders, or data sets with a loader for each."""

from collections.abc import Mapping
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset

from lockstep import data, schemas
from lockstep.config_error import config_error
from lockstep.data.samples import SampleData
from lockstep.data.tensors import TensorData
from lockstep.loaders.in_memory import InMemory, to_device_if_fits
from lockstep.loaders.loader_source import LoaderSource
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.schemas.data import BATCH_SIZE
from lockstep.schemas.target import KEY
from lockstep.targets.kinds import is_data_module


class DatasetSource(LoaderSource):
    """The source of data without loaders: `datasets` by stage, `options` of a DataLoader for each."""

    def __init__(
        self,
        choice: schemas.Data,
        module: Any,
        seed: int,
        batch_size: int | None,
        datasets: Mapping[str, "Dataset[Any]"],
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(choice, module, seed, batch_size, owner=None)
        self.datasets, self.options = datasets, options

    def has_loader(self, stage: str) -> bool:
        dataset: Any = self.datasets.get(stage, ())
        return isinstance(dataset, IterableDataset) or len(dataset) > 0

    def user_loaders(self, stage: str) -> list[Any]:
        dataset = self.datasets[stage]
        shuffle = stage == "train" and not isinstance(dataset, IterableDataset)
        return [DataLoader(dataset, batch_size=self.batch_size or BATCH_SIZE, shuffle=shuffle, **self.options)]


def create_source(choice: schemas.Data, module: Any, seed: int, batch_size: int | None) -> LoaderSource:
    """Return the source of the loaders of a LightningModule, or of a plain net whose data is in loaders.

    Args:
        module: None before it is created.
        batch_size: the plan's.

    Raises:
        ConfigError: the data's target returns neither a LightningDataModule nor streams.
    """
    if isinstance(choice, schemas.ModelLoaders):
        return LoaderSource(choice, module, seed, batch_size, module)
    if not isinstance(choice, schemas.UserLoaders):
        splits = data.load_splits(choice, seed, samples="module")
        return DatasetSource(choice, module, seed, batch_size, splits.datasets, splits.loader)
    from lockstep.data.user_data import create_data, streams_of

    created = create_data(choice, seed)
    if is_data_module(created):
        return LoaderSource(choice, module, seed, batch_size, created)
    streams = streams_of(choice, created)
    if streams is None:
        reason = f"it makes a {type(created).__name__}, and not a LightningDataModule"
        raise config_error(f"data.{KEY}", choice.call[KEY], reason, "the path of a LightningDataModule")
    return DatasetSource(choice, module, seed, batch_size, *streams)


def create_net_source(plan: Plan, splits: TensorData | SampleData, module: Any) -> LoaderSource:
    """Return the source of the loaders of a plain net; data in memory is fetched in blocks."""
    datasets: Mapping[str, Dataset[Any]] = splits.datasets
    if isinstance(splits, TensorData):
        device, *_ = plan.strategy.devices(plan)
        resident = to_device_if_fits(splits, device)
        datasets = {
            stage: InMemory(resident, split, device, dtype_of(plan)) for stage, split in resident.splits.items()
        }
    return DatasetSource(plan.data, module, plan.seed, plan.batch_size, datasets, splits.loader)
