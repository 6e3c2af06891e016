"""A user's Dataset, or three, or tensors as a LightningDataModule."""

from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, Subset

from lockstep.base.config_error import ConfigError
from lockstep.datamodules import Datasets
from tests.user_code.strange_data import Endless, Noisy, blobs, sine

BLOBS, COLOURS = blobs(40), ("red", "green", "blue")
TOKENS = torch.arange(40).view(10, 4) % 7


def sizes_of(data: Datasets) -> tuple[int, ...]:
    loaders = (data.train_dataloader(), data.val_dataloader(), data.test_dataloader())
    return tuple(len(loader.dataset) if loader else 0 for loader in loaders)


THREE = {"train": Noisy(40), "validation": Noisy(5), "test": None}
FORMS: dict[str, tuple[Datasets, tuple[int, int, int], tuple[int, ...], int, tuple[str, ...]]] = {
    "tensors": (Datasets(BLOBS, val_size=0.25, test_size=7), (23, 10, 7), (4,), 3, ("0", "1", "2")),
    "regression": (Datasets(sine(40)), (32, 4, 4), (1,), 1, ()),
    "dataset": (Datasets(Noisy(40), val_size=0), (36, 0, 4), (4,), 3, COLOURS),
    "mapping": (Datasets(THREE), (40, 5, 0), (4,), 3, COLOURS),
    "pixels": (Datasets(torch.ones(40, 6, dtype=torch.uint8)), (32, 4, 4), (6,), 6, ()),
    "sequences": (Datasets(TOKENS), (8, 1, 1), (4,), 7, ()),
}


@pytest.mark.parametrize("form", FORMS)
def test_sizes_and_shapes_are_known(form: str) -> None:
    data, sizes, shape, outputs, names = FORMS[form]
    assert (sizes_of(data), data.sample_shape, data.num_outputs) == (sizes, shape, outputs)
    assert (data.num_classes, data.class_names) == (len(names), names)


def test_a_split_has_every_sample_once_and_is_always_the_same() -> None:
    data, again = Datasets(BLOBS), Datasets(Noisy(40))
    rows = torch.cat([data.datasets[name].tensors[0] for name in ("train", "val", "test")])
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    assert torch.equal(rows, BLOBS[0][order])
    subset: Subset[Any] = again.datasets["val"]
    assert [*subset.indices] == order[32:36].tolist()


def transferred(data: Datasets) -> Any:
    return data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)


def test_batches_are_what_a_loss_takes() -> None:
    x, y = transferred(Datasets(sine(40)))
    assert (x.shape, y.shape) == ((4, 1), (4, 1)), "(4,) would be compared with all outputs"
    x, y = transferred(Datasets((torch.full((20, 3), 51, dtype=torch.uint8), torch.ones(20, 1, dtype=torch.int32))))
    assert (x[0].tolist(), y.dtype, y.shape) == ([pytest.approx(0.2)] * 3, torch.int64, (2,))
    assert transferred(Datasets(torch.rand(20, 3).double())).dtype == torch.float32


def test_a_stream_keeps_its_order_and_batch_size() -> None:
    streams: dict[str, IterableDataset[Any]] = {"train": Endless(13), "val": Endless(11)}
    data = Datasets(streams, batch_size=5, num_classes=3)
    for loader, sizes in ((data.train_dataloader(), [5, 5, 3]), (data.val_dataloader(), [5, 5, 1])):
        batches = [*loader]
        assert [len(x) for x, _ in batches] == sizes
        labels = [int(label) for _, y in batches for label in y]
        assert labels == [index * 7 % 3 for index in range(sum(sizes))]
    assert (data.test_dataloader(), data.num_outputs) == ([], 3)


def test_a_number_of_classes_that_nothing_tells_is_none() -> None:
    """A module of a user's may not need it; that of a Classifier has to be typed."""
    data = Datasets({"train": Subset(Noisy(9), [0, 1])})
    assert data.class_names == COLOURS
    unlabelled = Noisy(9)
    unlabelled.classes = ()  # type: ignore[assignment]
    data = Datasets(unlabelled)
    assert (data.sample_shape, data.num_outputs, data.num_classes, data.class_names) == ((4,), None, None, ())


INVALID: dict[str, dict[str, Any]] = {
    "data.val_size=40: it leaves nothing to train on": {"dataset": BLOBS, "val_size": 40},
    "data.dataset=train, valid: it is in other parts": {"dataset": {"train": Noisy(9), "valid": Noisy(9)}},
    "data.dataset=tuple: it cannot be divided": {"dataset": (Noisy(9), Noisy(9))},
}


@pytest.mark.parametrize("sentence", INVALID)
def test_wrong_values_are_rejected(sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^{sentence}.*; write "):
        Datasets(**INVALID[sentence])
