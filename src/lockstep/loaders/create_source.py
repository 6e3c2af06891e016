"""Where the batches of a user's module come from: a LightningDataModule, the module itself, or data of another kind."""

from typing import Any

from lockstep import data, schemas
from lockstep.config_error import config_error
from lockstep.loaders.loader_source import LoaderSource
from lockstep.random_state import seeded
from lockstep.schemas.target import KEY
from lockstep.targets.kinds import is_data_module
from lockstep.targets.locate import create


def create_source(choice: schemas.Data, module: Any, seed: int, batch_size: int | None) -> LoaderSource:
    """Return the source of a data set's loaders.

    Args:
        module: None before it is created.
        batch_size: the plan's.

    Raises:
        ConfigError: the data's target returns neither a LightningDataModule nor streams.
    """
    if isinstance(choice, schemas.ModelLoaders):
        return LoaderSource(choice, module, seed, batch_size, module)
    from lockstep.loaders.dataset_source import DatasetSource

    if not isinstance(choice, schemas.OwnLoaders):
        return DatasetSource(choice, module, seed, batch_size, data.load_splits(choice, seed, samples="theirs"))
    created = seeded(seed, lambda: create("data", choice.call))
    if is_data_module(created):
        return LoaderSource(choice, module, seed, batch_size, created)
    from lockstep.data.own import streams_of

    streams = streams_of(choice, created)
    if streams is None:
        reason = f"it makes a {type(created).__name__}, and not a LightningDataModule"
        raise config_error(f"data.{KEY}", choice.call[KEY], reason, "the path of a LightningDataModule")
    return DatasetSource(choice, module, seed, batch_size, streams)
