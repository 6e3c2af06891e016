"""Data of the user's own: what their target makes, taken for three splits.

It makes a Dataset, or a pair of tensors (inputs, targets), which `_split_` divides; or a mapping or a tuple of such:
train, val, test.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, Subset, TensorDataset, default_collate

from lockstep.config_error import ConfigError, config_error, require
from lockstep.data.mappings import FromMappings, keys_of
from lockstep.data.samples import SampleData, Streams, pair_of, targets_for_loss
from lockstep.data.tensors import Split, TensorData, split_rows
from lockstep.random_state import preserve_generators, seed_all, seeded
from lockstep.schemas.data_keys import PLANNED
from lockstep.schemas.own_data import OwnData, OwnLoaders
from lockstep.schemas.target import KEY, PARTIAL
from lockstep.schemas.task import Samples
from lockstep.targets.locate import UserCodeError, check, create, user_errors

NAMES = ("train", "val", "test")
LOADER = {KEY: "torch.utils.data.DataLoader", PARTIAL: True}


def streams_of(choice: OwnData | OwnLoaders, made: Any) -> Streams | None:
    """IterableDatasets that a target makes, one to train on or several splits; None: it makes something else."""
    named = {"train": made} if isinstance(made, IterableDataset) else _by_name(made) or {}
    found = {name: named[name] for name in NAMES if named.get(name) is not None}
    if "train" not in found or not any(isinstance(own, IterableDataset) for own in found.values()):
        return None
    streams = {name: own if isinstance(own, IterableDataset) else _dataset(choice, own) for name, own in found.items()}
    return Streams(streams, _loader_options(choice))


def _by_name(made: Any) -> dict[str, Any] | None:
    """Return a mapping or a tuple of splits as a mapping; None for one data set."""
    if isinstance(made, Mapping):
        return {"val" if name == "validation" and "val" not in made else name: own for name, own in made.items()}
    if isinstance(made, list | tuple) and not _is_pair(made) and 2 <= len(made) <= 3:
        return dict(zip(NAMES if len(made) == 3 else ("train", "test"), made, strict=True))
    return None


def _loader_options(choice: OwnData | OwnLoaders) -> dict[str, Any]:
    return {key: create(f"data._loader_.{key}", value) for key, value in choice.loader.items()}


def outputs_of(
    choice: OwnData | OwnLoaders, splits: Sequence[Any], owner: Any, target: Tensor, samples: Samples
) -> int:
    """The number of outputs that a net needs for data in loaders; 0 where nothing says it, and the task may not ask.

    Args:
        splits: the data sets of the loaders, of training first.
        owner: a LightningDataModule, which may say `num_classes`.
    """
    said = getattr(owner, "num_classes", None)
    if isinstance(said, int) and choice.class_count is None and not target.is_floating_point() and samples != "inputs":
        return said
    return _outputs(choice, splits[0], [_in_tensors(own, samples) for own in splits], target, samples)


def load(choice: OwnData, seed: int, samples: Samples = "pairs") -> TensorData | SampleData:
    """The splits.

    Raises:
        ConfigError: the target makes something else than data.
    """
    return _splits(choice, seed, samples, made_by(choice, seed))[0]


def made_by(choice: OwnData | OwnLoaders, seed: int) -> Any:
    """What the target makes: whatever it draws is drawn under the run's seed, the same on every rank."""
    return seeded(seed, lambda: create("data", choice.call))


def _splits(choice: OwnData, seed: int, samples: Samples, made: Any) -> tuple[TensorData | SampleData, Tensor]:
    """The splits, and the target of the first sample; no number where only a LightningModule knows what samples are."""
    splits, options = _three(choice, made), _loader_options(choice)
    if keys := keys_of(choice):
        options["collate_fn"] = FromMappings(keys, options.get("collate_fn", default_collate))
    collate = options.get("collate_fn", default_collate)
    target, outputs, parts = torch.zeros(0), 0, [*splits.values()]
    shape: tuple[int, ...] = ()
    try:
        with preserve_generators(), user_errors(f"data.{KEY}={choice.call[KEY]}", "a sample of it raises this."):
            seed_all(0)
            inputs, targets = pair_of(collate([splits["train"][0]]), samples)
        target = targets_for_loss(targets)[0]
        parts = [_in_tensors(own, samples) for own in splits.values()]
        outputs, shape = _outputs(choice, splits["train"], parts, target, samples), tuple(inputs.shape[1:])
    except ConfigError as error:
        if samples != "theirs" or isinstance(error, UserCodeError):
            raise
    if all(isinstance(part, Split) for part in parts):
        return TensorData(parts[0], parts[1], parts[2], outputs, own_targets=samples == "inputs"), target
    train, val, test = splits.values()
    return SampleData(train, val, test, outputs, shape, seed, options, samples), target


def describe(choice: OwnData, seed: int, samples: Samples = "pairs", made: Any = None) -> dict[str, Any]:
    """What a plan has to know of the data, by the fields of OwnData.

    Args:
        made: by the target; None: it is called here.
    """
    made = made_by(choice, seed) if made is None else made
    check("data._loader_", {**LOADER, **choice.loader}, ours=PLANNED)
    data, target = _splits(choice, seed, samples, made)
    if isinstance(data, SampleData):
        try:
            data.reader(data.train)
        except (ValueError, TypeError) as error:
            raise config_error("data._loader_", choice.loader, str(error), "other arguments") from None
    sizes = {"train_samples": len(data.train), "val_size": len(data.val), "test_size": len(data.test)}
    return sizes | shape_facts(data.shape, target, data.outputs)


def shape_facts(shape: Sequence[int], target: Tensor, outputs: int) -> dict[str, Any]:
    """Return what a net and its task have to know of a sample, by the fields of OwnSamples."""
    classed = not target.is_floating_point() and outputs > 0
    parts = list(target.shape) if classed else []
    return {"shape": list(shape), "outputs": outputs, "classes": outputs if classed else 0, "parts": parts}


def _three(choice: OwnData, made: Any) -> dict[str, Any]:
    """Datasets by their names; what is not there is empty."""
    key, path, splits = f"data.{KEY}", choice.call[KEY], _by_name(made)
    if splits is None:
        return _divided(choice, _dataset(choice, made))
    fits = "train" in splits and {*splits} <= {*NAMES}
    require(fits, key, path, _odd(made), "train, val and test")
    reason = "the data is in three parts already"
    require(not choice.split, "data._split_", choice.split, reason, "no _split_, or data in one part")
    train = _dataset(choice, splits["train"])
    require(len(train) > 0, key, path, "it has no samples to train on", "another")
    rest = [splits.get(name) for name in NAMES[1:]]
    val, test = (Subset(train, []) if own is None else _dataset(choice, own) for own in rest)
    return {"train": train, "val": val, "test": test}


def _divided(choice: OwnData, whole: Any) -> dict[str, Any]:
    """One data set in three parts, by a permutation that is always the same."""
    total = len(whole)
    require(total > 0, f"data.{KEY}", choice.call[KEY], "it has no samples", "another")
    rows = split_rows(total, {name: choice.split.get(name, 0.1) for name in ("val", "test")})
    reason = f"it leaves nothing of {total} samples to train on"
    require(bool(rows["train"]), "data._split_", choice.split, reason, "less")
    return {name: Subset(whole, own) for name, own in rows.items()}


def _dataset(choice: OwnData | OwnLoaders, own: Any) -> Any:
    """A map-style data set of what stands for one."""
    if isinstance(own, Tensor):
        return TensorDataset(own)
    if _is_pair(own):
        inputs, target = own
        reason = f"inputs of {len(inputs)} rows and targets of {len(target)}"
        require(len(inputs) == len(target), f"data.{KEY}", choice.call[KEY], reason, "as many of both")
        return TensorDataset(inputs, target)
    fits = hasattr(own, "__getitem__") and hasattr(own, "__len__") and not isinstance(own, str | list | tuple | dict)
    hint = "a map-style Dataset, a pair of tensors, or a mapping of train, val and test to such"
    require(fits, f"data.{KEY}", choice.call[KEY], _odd(own), f"the path of what makes {hint}")
    return own


def _odd(made: Any) -> str:
    return f"it makes a {type(made).__name__} that cannot be split in train, val and test"


def _is_pair(made: Any) -> bool:
    return isinstance(made, list | tuple) and len(made) == 2 and all(isinstance(part, Tensor) for part in made)


def _in_tensors(own: Any, samples: Samples) -> Any:
    """Return a split whose samples lie in tensors, so that a batch is one index; else the data set as it is."""
    if isinstance(own, Subset) and type(own.dataset) is TensorDataset and len(own.dataset.tensors) <= 2:
        tensors = [part[own.indices] for part in own.dataset.tensors]
    elif type(own) is TensorDataset and len(own.tensors) <= 2:
        tensors = [*own.tensors]
    else:
        return own
    if samples == "theirs" and len(tensors) != 2:
        return own
    inputs, target = pair_of(tensors, samples)
    return Split(inputs, targets_for_loss(target))


def _outputs(choice: OwnData | OwnLoaders, train: Any, parts: Sequence[Any], target: Tensor, samples: Samples) -> int:
    """The number of outputs that a net needs; 0 where nothing says it, and the task may not ask.

    Args:
        parts: the splits, in tensors where they can be.
        target: of one sample.

    Raises:
        ConfigError: there are classes, and nothing says how many; or whole numbers are to be given back.
    """
    if target.is_floating_point() or (samples == "inputs" and target.dtype == torch.uint8):  # pixels
        return target.numel()
    reason = "inputs to give back are real numbers or pixels"
    require(samples != "inputs", f"data.{KEY}", choice.call[KEY], reason, "others")
    if choice.class_count is not None:
        return choice.class_count
    if all(isinstance(part, Split) for part in parts):
        counted = [part.targets for part in parts if len(part)]
        counted += [part.inputs for part in parts if len(part) and samples == "sequences"]
        return max(int(own.max()) for own in counted) + 1
    whole = train.dataset if isinstance(train, Subset) else train
    named = getattr(whole, "classes", None) or _of_column(whole, choice.target_key)
    if isinstance(named, int):
        return named
    if named is not None and hasattr(named, "__len__"):
        return len(named)
    if samples != "any":
        raise ConfigError("data._classes_ is missing: the targets are whole numbers; write data._classes_=10, say.")
    return 0


def _of_column(table: Any, column: str | None) -> int | None:
    """The classes that a `datasets` table has for a column, if it says so."""
    features = getattr(table, "features", None)
    count = getattr(features.get(column), "num_classes", None) if isinstance(features, Mapping) else None
    return count if isinstance(count, int) else None
