"""What loaders of a user come to, before any rank starts: samples, batches, sizes, and whether they repeat."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from lockstep.config_error import config_error
from lockstep.data.mappings import keys_of
from lockstep.data.own import outputs_of, shape_facts
from lockstep.data.samples import pair_of, targets_for_loss
from lockstep.loaders.loader_source import METHOD, STAGES, LoaderSource
from lockstep.loaders.rank_loader import RankLoader, RankSlice
from lockstep.loaders.user_loaders import MapLoader, StreamLoader
from lockstep.random_state import preserve_generators, seeded
from lockstep.schemas.target import KEY
from lockstep.schemas.task import Samples
from lockstep.targets.locate import user_errors


class OneProcess:
    """`self.trainer` while loaders are looked at before any rank starts: a world of one."""

    world_size = num_devices = num_nodes = 1
    global_rank = local_rank = node_rank = 0
    is_global_zero = True

    def __init__(self, known: Mapping[str, Any]) -> None:
        vars(self).update(known)

    @property
    def strategy(self) -> "OneProcess":
        return self


def facts_of(source: LoaderSource, known: Mapping[str, Any]) -> dict[str, Any]:
    """Set up a user's loaders, and return what a plan has to know of them, by the fields of OwnLoaders.

    Raises:
        ConfigError: there is nothing to train on.
    """
    owner = source.owner
    with user_errors(f"data.{KEY}={source.choice.name}", "its loaders cannot be made."):
        if owner is not None:
            owner.trainer = OneProcess(known)
            owner.prepare_data()
            seeded(source.seed, lambda: owner.setup("fit"))
        if not source.has("train"):
            raise config_error("data", source.choice.name, "it has no train_dataloader", "data with one")
        rank_slice = RankSlice(0, 1)
        train = source.loaders("train", rank_slice)[0]
        repeatable = _repeatable(source, train)
        evaluated = {stage: _evaluated(source, stage, rank_slice) for stage in ("val", "test")}
        rest = {stage: sum(_samples(own) or 1 for own in loaders) for stage, loaders in evaluated.items()}
        sizes = {stage: [_batch_size(own) for own in loaders] for stage, loaders in evaluated.items()}
    mapped, batches = isinstance(train, MapLoader), 0
    with suppress(TypeError, NotImplementedError):  # of unknown length
        batches = len(train)
    return {
        "train_samples": _samples(train),
        "repeatable": repeatable,
        "train_batches": batches,
        "regular": mapped and train.batches.regular,
        "size": _batch_size(train),
        "drop_last": mapped and train.batches.drop_last,
        **{f"{stage}_size": size for stage, size in rest.items()},
        **{f"{stage}_batch_sizes": own for stage, own in sizes.items()},
    }


def sample_facts(source: LoaderSource, samples: Samples) -> dict[str, Any]:
    """Return what a plain net and its task have to know of a batch, by the fields of OwnLoaders.

    Raises:
        ConfigError: it is not what the task takes, nobody knows how many classes there are, or an evaluation has
            several loaders.
    """
    choice: Any = source.choice
    with user_errors(f"data.{KEY}={choice.call[KEY]}", "a batch of it raises this."), preserve_generators():
        batch = next(iter(source.loaders("train", RankSlice(0, 1))[0]))
    keys = keys_of(choice)
    inputs, target = pair_of(keys.of_batch(batch) if keys else batch, samples)
    target = targets_for_loss(target)[0]
    for stage in ("val", "test"):
        if source.has(stage) and (count := len(source.user_loaders(stage))) > 1:
            reason = f"its {METHOD[stage]} returns {count} loaders, and a plain net is measured on one"
            raise config_error("data", choice.name, reason, "a LightningModule, or one loader")
    held = [source.user_loaders(stage)[0] for stage in STAGES if source.has(stage)]
    outputs = outputs_of(choice, [getattr(own, "dataset", None) for own in held], source.owner, target, samples)
    return shape_facts(inputs.shape[1:], target, outputs)


def _repeatable(source: LoaderSource, train: RankLoader) -> bool:
    """Whether a stream yields the same samples twice under one seed. Data with an index always does."""
    if not isinstance(train, StreamLoader):
        return True
    choice: Any = source.choice
    with user_errors(f"data.{KEY}={getattr(choice, KEY, choice.name)}", "a batch of it raises this."):
        again: Any = source.loaders("train", RankSlice(0, 1))[0]
        repeats: bool = train.first_fingerprint() == again.first_fingerprint()
        return repeats


def _samples(loader: RankLoader) -> int:
    """Return the samples of an epoch, including dropped ones; 0 if unknown."""
    return loader.batches.samples if isinstance(loader, MapLoader) else 0


def _batch_size(loader: RankLoader) -> int:
    """Return the batch size of regular batches or of a stream; 0 if batches have different sizes."""
    if isinstance(loader, MapLoader):
        return loader.batches.batch_size or 0
    return (loader.batch_size or 0) if isinstance(loader, StreamLoader) else 0


def _evaluated(source: LoaderSource, stage: str, rank_slice: RankSlice) -> list[RankLoader]:
    """Return the loaders of an evaluation, if there are any."""
    if not source.has(stage):
        return []
    if stage == "test" and source.owner is not None:
        seeded(source.seed, lambda: source.owner.setup("test"))
    return source.loaders(stage, rank_slice)
