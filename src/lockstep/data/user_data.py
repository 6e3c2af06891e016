"""A user's data: what its target creates, as train, validation and test split.

A target creates a Dataset or a pair of tensors (inputs, targets), which the setting `split` divides; or a mapping or a
tuple of such: train, val, test.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset, default_collate

from lockstep.config_error import ConfigError, config_error, require
from lockstep.data.samples import Splits, collate_values, keys_of, pair_of, targets_for_loss
from lockstep.data.tensors import STAGES, Split, split_rows
from lockstep.random_state import preserve_generators, seed_all, seeded
from lockstep.schemas.data import DataFacts, UserData, UserLoaders
from lockstep.schemas.target import ARGS, KEY
from lockstep.schemas.task import Samples
from lockstep.targets.locate import UserCodeError, check, create, user_errors

LOADER = {KEY: "torch.utils.data.DataLoader", ARGS: [None]}


def create_data(choice: UserData, seed: int) -> Any:
    """Call the data's target under the run's seed, so that it draws the same on every rank."""
    return seeded(seed, lambda: create(choice.key, choice.call))


def load(choice: UserData, seed: int, samples: Samples = "pairs") -> Splits:
    """Return the splits, in memory as far as they are tensors."""
    datasets = _three_datasets(choice, create_data(choice, seed))
    train, val, test = (_in_memory(dataset, samples) for dataset in datasets.values())
    return Splits(train, val, test, _loader_options(choice), samples)


def describe(choice: UserData, created: Any, samples: Samples = "pairs") -> DataFacts:
    """Return facts about the data that its target has created.

    Of samples that only a LightningModule takes, only their number is known.
    """
    check("data.loader", {**LOADER, **choice.loader})
    datasets, options = _three_datasets(choice, created), _loader_options(choice)
    try:
        DataLoader(datasets["train"], **options)
    except (ValueError, TypeError) as error:
        raise config_error("data.loader", choice.loader, str(error), "other arguments") from None
    train, val, test = map(len, datasets.values())
    try:
        with (
            preserve_generators(),
            user_errors(f"{choice.key}.{KEY}={choice.call[KEY]}", "a sample of it raises this."),
        ):
            seed_all(0)
            inputs, targets = pair_of(options.get("collate_fn", default_collate)([datasets["train"][0]]), samples)
        target = targets_for_loss(targets)[0]
        outputs = outputs_of(choice, [*datasets.values()], target, samples)
    except ConfigError as error:
        if samples != "module" or isinstance(error, UserCodeError):
            raise
        return DataFacts(train, val, test)
    facts = sample_facts(inputs[0], target, outputs)
    names = _class_names(datasets["train"])
    return DataFacts(train, val, test, **facts, class_names=names if len({*names}) == facts["classes"] else ())


def sample_facts(inputs: Tensor, target: Tensor, outputs: int) -> dict[str, Any]:
    """Return what a net and its task need to know of a sample, by the fields of DataFacts."""
    has_classes = not target.is_floating_point() and outputs > 0
    parts = tuple(target.shape) if has_classes else ()
    facts = {"shape": tuple(inputs.shape), "dtype": str(inputs.dtype).removeprefix("torch.")}
    return {**facts, "outputs": outputs, "classes": outputs if has_classes else 0, "parts": parts}


def streams_of(choice: UserData, created: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the splits if any is an IterableDataset, and arguments of a DataLoader; None for other data."""
    splits = _by_name(created) or {"train": created}
    if not any(isinstance(split, IterableDataset) for split in splits.values()):
        return None
    datasets = {name: _dataset(choice, splits[name]) for name in STAGES if splits.get(name) is not None}
    return datasets, _loader_options(choice)


def outputs_of(
    choice: UserData, datasets: Sequence[Any], target: Tensor, samples: Samples, num_classes: Any = None
) -> int:
    """Return the number of outputs that a net needs; 0 if it is unknown, and the task may not need it.

    Args:
        datasets: of all splits, training first.
        target: of one sample.
        num_classes: that a LightningDataModule has.
    """
    if target.is_floating_point() or (samples == "inputs" and target.dtype == torch.uint8):  # pixels
        return target.numel()
    reason = "inputs to give back are real numbers or pixels"
    require(samples != "inputs", f"{choice.key}.{KEY}", choice.call[KEY], reason, "others")
    if choice.num_classes is not None:
        return choice.num_classes
    if isinstance(num_classes, int):
        return num_classes
    splits = [_in_memory(dataset, samples) for dataset in datasets]
    if all(isinstance(split, Split) for split in splits):
        classes = [split.targets for split in splits if len(split)]
        classes += [split.inputs for split in splits if len(split) and samples == "sequences"]
        return max(int(tensor.max()) for tensor in classes) + 1
    if names := _class_names(datasets[0]):
        return len(names)
    if samples != "any":
        raise ConfigError("data.classes is missing: the targets are whole numbers; write data.classes=10.")
    return 0


def _class_names(dataset: Any) -> tuple[str, ...]:
    """Return the attribute `classes` of a Dataset, or of the one that it is a subset of; empty if it has none."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    names = getattr(dataset, "classes", None)
    return tuple(map(str, names)) if isinstance(names, Iterable) and not isinstance(names, str) else ()


def _loader_options(choice: UserData) -> dict[str, Any]:
    """Return the arguments of a DataLoader; its collate function leaves the named keys of a mapping."""
    options = {key: create(f"data.loader.{key}", value) for key, value in choice.loader.items()}
    if not isinstance(choice, UserLoaders) and (keys := keys_of(choice)):
        options["collate_fn"] = partial(collate_values, keys, options.get("collate_fn", default_collate))
    return options


def _by_name(created: Any) -> dict[str, Any] | None:
    """Return a mapping or a tuple of splits as a mapping; None for one data set."""
    if isinstance(created, Mapping):
        return {"val" if name == "validation" and "val" not in created else name: created[name] for name in created}
    if isinstance(created, list | tuple) and not _is_pair(created) and 2 <= len(created) <= 3:
        return dict(zip(STAGES if len(created) == 3 else ("train", "test"), created, strict=True))
    return None


def _three_datasets(choice: UserData, created: Any) -> dict[str, Any]:
    """Return train, val and test; those that the target does not create are empty."""
    splits = _by_name(created)
    if splits is None:
        dataset = _dataset(choice, created)
        rows = split_rows(len(dataset), {name: choice.split.get(name, 0.1) for name in ("val", "test")})
        datasets: dict[str, Any] = {name: Subset(dataset, rows[name]) for name in STAGES}
    else:
        reason = "the data is in three parts already"
        require(not choice.split, "data.split", choice.split, reason, "no split, or data in one part")
        fits = splits.get("train") is not None and {*splits} <= {*STAGES}
        _require(fits, choice, f"it makes {', '.join(map(str, splits))}", "train, val and test")
        datasets = {name: _dataset(choice, split) for name, split in splits.items() if split is not None}
        datasets = {name: datasets.get(name, Subset(datasets["train"], [])) for name in STAGES}
    reason, hint = "it leaves nothing to train on", "less, or more data"
    require(len(datasets["train"]) > 0, "data.split", choice.split, reason, hint)
    return datasets


def _dataset(choice: UserData, data: Any) -> Any:
    """Return a Dataset, or tensors as one."""
    if isinstance(data, Tensor) or _is_pair(data):
        tensors = [data] if isinstance(data, Tensor) else data
        _require(len({*map(len, tensors)}) == 1, choice, "its tensors have unequal lengths", "as many rows of both")
        return TensorDataset(*tensors)
    has_index = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    fits = isinstance(data, IterableDataset) or (has_index and not isinstance(data, str | list | tuple | dict))
    hint = "the path of what makes a map-style Dataset, a pair of tensors, or a mapping of train, val and test to such"
    _require(fits, choice, f"it makes a {type(data).__name__} that cannot be split in train, val and test", hint)
    return data


def _require(condition: bool, choice: UserData, reason: str, hint: str) -> None:
    require(condition, f"{choice.key}.{KEY}", choice.call[KEY], reason, hint)


def _is_pair(data: Any) -> bool:
    return isinstance(data, list | tuple) and len(data) == 2 and all(isinstance(item, Tensor) for item in data)


def _in_memory(dataset: Any, samples: Samples) -> Any:
    """Return a data set of one or two tensors as a Split, so that a batch is one index; others as they are."""
    rows = dataset.indices if isinstance(dataset, Subset) else slice(None)
    source = dataset.dataset if isinstance(dataset, Subset) else dataset
    if type(source) is not TensorDataset or len(source.tensors) not in ((2,) if samples == "module" else (1, 2)):
        return dataset
    inputs, targets = pair_of([tensor[rows] for tensor in source.tensors], samples)
    return Split(inputs, targets_for_loss(targets))
