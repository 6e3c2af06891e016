"""A user's Dataset, or three, or tensors as a LightningDataModule."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, Subset, TensorDataset, default_collate, random_split

from lockstep.base.config_error import ConfigError
from lockstep.datamodules import Datasets
from lockstep.datamodules.datasets import collate_values
from lockstep.engine.loaders.source import create_data
from lockstep.plan.schemas import Data
from tests.test_datamodules import stock
from tests.user_code.strange_data import Endless, MappedStream, Noisy, blobs, sine

BLOBS, COLOURS = blobs(40), ("red", "green", "blue")
TOKENS = torch.arange(40).view(10, 4) % 7


def sizes_of(data: Datasets) -> tuple[int, ...]:
    loaders = (data.train_dataloader(), data.val_dataloader(), data.test_dataloader())
    return tuple(len(loader.dataset) if loader else 0 for loader in loaders)


FORMS: dict[str, tuple[Datasets, tuple[int, int, int], tuple[int, ...], int, tuple[str, ...]]] = {
    "tensors": (Datasets(BLOBS), (32, 4, 4), (4,), 3, ("0", "1", "2")),
    "shares": (Datasets(BLOBS, val_size=0.25, test_size=7), (23, 10, 7), (4,), 3, ("0", "1", "2")),
    "regression": (Datasets(sine(40)), (32, 4, 4), (1,), 1, ()),
    "dataset": (Datasets(Noisy(40), val_size=0), (36, 0, 4), (4,), 3, COLOURS),
    "three": (Datasets(train=Noisy(40), val=Noisy(9), test=Noisy(5)), (40, 9, 5), (4,), 3, COLOURS),
    "validation": (Datasets({"train": Noisy(40), "validation": Noisy(5)}), (40, 5, 0), (4,), 3, COLOURS),
    "two": (Datasets((Noisy(40), Noisy(5))), (40, 0, 5), (4,), 3, COLOURS),
    "classes": (Datasets(BLOBS, num_classes=8), (32, 4, 4), (4,), 8, tuple("01234567")),
    "subsets": (Datasets(random_split(TensorDataset(*BLOBS), [30, 6, 4])), (30, 6, 4), (4,), 3, ("0", "1", "2")),
    "inputs": (Datasets(torch.rand(40, 2, 3)), (32, 4, 4), (2, 3), 6, ()),
    "pixels": (Datasets(torch.ones(40, 6, dtype=torch.uint8)), (32, 4, 4), (6,), 6, ()),
    "sequences": (Datasets(TOKENS.int()), (8, 1, 1), (4,), 7, ()),
}


@pytest.mark.parametrize("form", FORMS)
def test_sizes_and_shapes_are_known(form: str) -> None:
    data, sizes, shape, outputs, names = FORMS[form]
    assert (sizes_of(data), data.sample_shape, data.num_outputs) == (sizes, shape, outputs)
    assert (data.num_classes, data.class_names) == (len(names), names)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("data", [Datasets(BLOBS, 8), Datasets(sine(40), 8), Datasets(Noisy(40), 8, val_size=0)])
def test_a_stock_trainer_takes_them(data: Datasets) -> None:
    seen = stock(data, num_sanity_val_steps=0).seen
    assert tuple(sum(size for size, *_ in seen[stage]) for stage in ("train", "val", "test")) == sizes_of(data)


def test_a_split_has_every_sample_once_and_is_always_the_same() -> None:
    data, again = Datasets(BLOBS), Datasets(Noisy(40))
    rows = torch.cat([data.datasets[name].tensors[0] for name in ("train", "val", "test")])
    assert sorted(rows[:, 0].tolist()) == sorted(BLOBS[0][:, 0].tolist())
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    assert torch.equal(rows, BLOBS[0][order])
    subset: Subset[Any] = again.datasets["val"]
    assert [*subset.indices] == order[32:36].tolist()


def test_a_target_draws_under_the_seed() -> None:
    """The generators of the rank are preserved."""
    dataset = {"_target_": "tests.user_code.strange_data.drawn", "samples": 40}
    choice = Data("Datasets", "data", {"_target_": "lockstep.datamodules.Datasets", "dataset": dataset})
    torch.manual_seed(1)
    one, same, other = (create_data(choice, seed).datasets["train"].tensors[0] for seed in (1, 1, 2))
    drawn = torch.rand(())
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(()), drawn)


def transferred(data: Datasets) -> Any:
    return data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)


def test_batches_are_what_a_loss_takes() -> None:
    x, y = transferred(Datasets(sine(40)))
    assert (x.shape, y.shape) == ((4, 1), (4, 1)), "(4,) would be compared with all outputs"
    x, y = transferred(Datasets((torch.full((20, 3), 51, dtype=torch.uint8), torch.ones(20, 1, dtype=torch.int32))))
    assert (x[0].tolist(), y.dtype, y.shape) == ([pytest.approx(0.2)] * 3, torch.int64, (2,))
    assert transferred(Datasets(torch.rand(20, 3).double())).dtype == torch.float32
    assert transferred(Datasets(TOKENS.int())).dtype == torch.int64


def test_a_stream_keeps_its_order_and_batch_size() -> None:
    streams: dict[str, IterableDataset[Any]] = {"train": Endless(13), "val": Endless(11)}
    data = Datasets(streams, batch_size=5, num_classes=3)
    for loader, sizes in ((data.train_dataloader(), [5, 5, 3]), (data.val_dataloader(), [5, 5, 1])):
        batches = [*loader]
        assert [len(targets) for _, targets in batches] == sizes
        labels: list[int] = torch.cat([targets for _, targets in batches]).tolist()
        assert labels == [index * 7 % 3 for index in range(sum(sizes))]
    assert (data.test_dataloader(), data.num_outputs) == ([], 3)


def test_named_keys_and_a_users_collate_function() -> None:
    """A table without a format has lists; torch's collate function would collate them place by place."""
    samples: list[dict[str, Any]] = [{"x": [1.0, 2.0], "y": 1, "name": "a"}, {"x": [3.0, 4.0], "y": 0, "name": "b"}]
    keys = {"data.input_key": "x", "data.target_key": "y"}
    expected = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1, 0])
    for function in (default_collate, lambda samples: default_collate([*samples])):
        assert all(map(torch.equal, collate_values(keys, function, samples), expected))
        assert torch.equal(collate_values({"data.input_key": "x"}, function, samples)[0], expected[0])
        loader = {"collate_fn": function, "num_workers": 0}
        data = Datasets(train=Rows(samples), loader=loader, num_classes=2, input_key="x", target_key="y")
        inputs, _ = next(iter(data.train_dataloader()))
        assert (inputs.shape, data.sample_shape) == ((2, 2), (2,))
    stream = Datasets(train=MappedStream(6), batch_size=6, num_classes=3, input_key="x")
    (values,) = next(iter(stream.train_dataloader()))
    assert values.shape == (6, 4)


class Rows(torch.utils.data.Dataset[Any]):
    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


def unlabelled(count: int) -> list[tuple[Tensor, int]]:
    return [(torch.zeros(2), index) for index in range(count)]


def test_a_number_of_classes_that_nothing_tells_is_none() -> None:
    """A module of a user's may not need it; that of a Classifier has to be typed."""
    data = Datasets(Rows(unlabelled(20)))
    assert (data.sample_shape, data.num_outputs, data.num_classes, data.class_names) == ((2,), None, None, ())


INVALID: dict[str, dict[str, Any]] = {
    "data.val_size=1.5: it is a number of samples, or a share below 1": {"dataset": BLOBS, "val_size": 1.5},
    "data.val_size=40: it leaves nothing to train on": {"dataset": BLOBS, "val_size": 40},
    "data.num_classes=1: it must be 2 or more": {"dataset": BLOBS, "num_classes": 1},
    "data.loader={num_worker:1}: DataLoader.__init__.. got an unexpected": {
        "dataset": BLOBS,
        "loader": {"num_worker": 1},
    },
    "data.loader.batch_size=8: the run determines it": {"dataset": BLOBS, "loader": {"batch_size": 8}},
    "data.target_key=y: it needs the key of the inputs": {"dataset": BLOBS, "target_key": "y"},
    "data.input_key=z: a sample has no such key: it is a dict": {"dataset": Rows([{"x": 1}] * 20), "input_key": "z"},
    "data.input_key=x: a sample has no such key: it is a tuple": {"dataset": Noisy(20), "input_key": "x"},
    "data.dataset=train, valid: it is in other parts": {"dataset": {"train": Noisy(9), "valid": Noisy(9)}},
    "data.dataset=list: it cannot be divided": {"dataset": [0.5, 2, 3, 4]},
    "data=inputs and targets: they have unequal lengths": {"dataset": (BLOBS[0], BLOBS[1][:3])},
    "batch_size=0: it must be 1 or more": {"dataset": BLOBS, "batch_size": 0},
}


@pytest.mark.parametrize("sentence", INVALID)
def test_wrong_values_are_told_on_construction(sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^{sentence}.*; write "):
        Datasets(**INVALID[sentence])
