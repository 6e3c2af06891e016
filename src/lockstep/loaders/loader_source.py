"""Where the batches of a run come from: the loaders of a LightningDataModule, or of the LightningModule.

And what a plan needs to know of them before any rank starts: samples, batches, sizes, repeatability.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from torch.utils.data import IterableDataset

from lockstep import schemas
from lockstep.config_error import ConfigError, config_error, require
from lockstep.loaders.map_loader import MapLoader
from lockstep.loaders.rank_loader import RankLoader, RankSlice
from lockstep.loaders.stream_loader import StreamLoader, is_plain
from lockstep.random_state import seeded
from lockstep.schemas.target import KEY
from lockstep.step_plan import STAGES
from lockstep.targets.kinds import is_combined_loader, is_data_module, overrides, replace_method
from lockstep.targets.locate import create, user_errors

METHOD = {stage: f"{stage}_dataloader" for stage in STAGES}
STEP = {"train": "training_step", "val": "validation_step", "test": "test_step"}
SINGLE = RankSlice(0, 1)
ONE_PROCESS = {
    **dict.fromkeys(("world_size", "num_devices", "num_nodes"), 1),
    **dict.fromkeys(("global_rank", "local_rank", "node_rank"), 0),
    "is_global_zero": True,
}
"""Attributes of `self.trainer` and of its strategy before any rank starts."""

UNMADE = "its loaders cannot be made."


@dataclass
class LoaderSource:
    """The source of the loaders.

    create: functions that return the loaders of a stage, as `train_dataloader` does.
    owner: the LightningDataModule or LightningModule whose methods they are.
    """

    choice: schemas.Data
    module: Any
    seed: int
    batch_size: int | None
    create: Mapping[str, Callable[[], Any]]
    owner: Any

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
        return stage in self.create and overrides(self.module, STEP[stage])

    def user_loaders(self, stage: str) -> list[Any]:
        """Return the loaders of a stage; none if the method returns None."""
        returned = seeded(self.seed, self.create[stage])
        loaders = [*returned.values()] if isinstance(returned, Mapping) else [] if returned is None else returned
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
            has_index = is_plain(loader) and not isinstance(loader.dataset, IterableDataset)
            kind = MapLoader if has_index and loader.batch_sampler is not None else StreamLoader
            loaders.append(kind(loader, rank_slice, self.seed, stage == "train", size))
        return loaders

    def _batch_sizes(self, stage: str, loaders: int) -> Sequence[int | None]:
        """Return each loader's global batch size; None keeps that of the loader.

        A loader of an evaluation has the size of a single process: a LightningDataModule may divide its batch size by
        the number of ranks.
        """
        if stage == "train":
            return [self.batch_size if self.choice.regular else None]
        sizes = getattr(self.choice, f"{stage}_batch_sizes")
        return [size or None for size in sizes] if len(sizes) == loaders else [None] * loaders


def create_data(choice: schemas.Data, seed: int) -> Any:
    """Create the data module under the run's seed, so that it draws the same on every rank."""
    owner = seeded(seed, lambda: create(choice.key, choice.call))
    if not is_data_module(owner) and (hasattr(owner, "__getitem__") or isinstance(owner, IterableDataset)):
        from lockstep.schemas.former import data_error

        raise data_error(choice.call, type(owner).__name__)
    reason = f"it makes a {type(owner).__name__}, and not a LightningDataModule"
    require(is_data_module(owner), f"data.{KEY}", choice.path, reason, "the path of one")
    return owner


def create_source(
    choice: schemas.Data, module: Any, seed: int, batch_size: int | None, owner: Any = None
) -> LoaderSource:
    """Return the source of the loaders of a run; without their owner, create the data module or take the module."""
    if owner is None:
        owner = create_data(choice, seed) if choice.is_module else module
    methods = {stage: getattr(owner, name) for stage, name in METHOD.items() if overrides(owner, name)}
    return LoaderSource(choice, module, seed, batch_size, methods, owner)


def set_up(owner: Any, choice: schemas.Data, seed: int, trainer: SimpleNamespace) -> None:
    """Prepare the data, and set it up for training. `trainer` has the attributes that are known already."""
    vars(trainer).update(ONE_PROCESS)
    trainer.strategy = owner.trainer = trainer
    with user_errors(f"data.{KEY}={choice.name}", UNMADE):
        owner.prepare_data()
        seeded(seed, lambda: owner.setup("fit"))


def facts_of(source: LoaderSource) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return facts about loaders whose data is set up, and their batch size and drop_last for the plan."""
    owner, name = source.owner, source.choice.name
    with user_errors(f"data.{KEY}={name}", UNMADE):
        if not source.has("train"):
            chosen = name if source.choice.is_module else "none"
            raise config_error("data", chosen, "it has no train_dataloader", "data with one")
        train = source.loaders("train", SINGLE)[0]
        defaults = {"batch_size": train.global_batch_size, "drop_last": train.drop_last}
        facts: dict[str, Any] = {"train_samples": train.samples, "regular": train.regular}
        with suppress(TypeError, NotImplementedError):  # of unknown length
            facts["train_batches"] = len(train)
        for stage in ("val", "test"):
            if stage == "test" and source.has("test"):
                seeded(source.seed, lambda: owner.setup("test"))
            loaders = source.loaders(stage, SINGLE) if source.has(stage) else []
            facts[f"{stage}_size"] = sum(loader.samples or 1 for loader in loaders)
            facts[f"{stage}_batch_sizes"] = tuple(loader.global_batch_size for loader in loaders)
    return facts, defaults
