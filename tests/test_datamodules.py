"""The data modules whose samples are computed or come with a package: contents, splits, and a stock Trainer."""

from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from lockstep.base.config_error import ConfigError
from lockstep.datamodules import MNIST, Digits, Line, Points, RandomRegression
from lockstep.datamodules.digits import read_table


class Module(pl.LightningModule):
    """Knows nothing of Lockstep; remembers the dtypes and the sizes of its batches."""

    def __init__(self, data: Any) -> None:
        super().__init__()
        inputs = int(np.prod(data.sample_shape))
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(inputs, data.num_outputs))
        self.seen: dict[str, list[Any]] = {"train": [], "val": [], "test": [], "predict": []}

    def step(self, stage: str, batch: list[Tensor]) -> Tensor:
        x, y = batch
        self.seen[stage].append((len(x), x.dtype, y.dtype))
        outputs = self.net(x.to(self.dtype))
        return F.mse_loss(outputs, y) if y.is_floating_point() else F.cross_entropy(outputs, y)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return self.step("train", batch)

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.step("val", batch)

    def test_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.step("test", batch)

    def predict_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return self.net(batch[0])  # type: ignore[no-any-return]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def stock(data: Any, **options: Any) -> Module:
    """Train, validate, test and predict by Lightning alone."""
    module = Module(data)
    names = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    off: dict[str, Any] = dict.fromkeys(names, False)
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", devices=1, num_sanity_val_steps=0, **off, **options)
    trainer.fit(module, datamodule=data)
    trainer.test(module, datamodule=data, verbose=False)
    predictions: Any = trainer.predict(module, datamodule=data)
    assert sum(map(len, predictions)) == sum(size for size, *_ in module.seen["test"])
    return module


SIZES: dict[str, tuple[Any, tuple[int, int, int]]] = {
    "digits": (Digits(), (1257, 180, 360)),
    "line of three": (Line(inputs=[1.0, 2.0, 3.0], val_size=4), (3, 4, 1000)),
    "regression": (RandomRegression(), (90, 0, 1000)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SIZES)
def test_a_stock_trainer_takes_all_samples_in_the_dtype_of_the_module(name: str) -> None:
    """A split without samples has no loader; `setup` is called again."""
    data, sizes = SIZES[name]
    for precision, dtype in (("32-true", torch.float32), ("64-true", torch.float64)):
        seen = stock(data, precision=precision).seen
        assert tuple(sum(size for size, *_ in seen[stage]) for stage in ("train", "val", "test")) == sizes
        assert max(size for size, *_ in seen["train"]) == min(data.batch_size, sizes[0])
        assert {x for batches in seen.values() for _, x, _ in batches} == {dtype}
        targets = {y for batches in seen.values() for *_, y in batches}
        assert targets == {torch.int64 if data.num_classes else dtype}


def test_pixels_are_scaled_in_a_batch_alone_and_classes_stay() -> None:
    data, images = Digits(), torch.tensor([[[[0, 255]]]], dtype=torch.uint8)
    data.mean, data.std = 0.5, 0.25
    inputs, targets = data.on_after_batch_transfer([images, torch.tensor([1])], 0)
    assert inputs.tolist() == [[[[-2.0, 2.0]]]]
    assert targets.dtype == torch.int64
    assert images.tolist() == [[[[0, 255]]]]


def tensors(data: Any) -> dict[str, tuple[Tensor, ...]]:
    data.setup("fit")
    return {name: dataset.tensors for name, dataset in data.datasets.items() if len(dataset)}


def test_the_seven_points_are_those_of_the_source() -> None:
    points = tensors(Points())
    assert points["train"][0].tolist() == [[-1.2, 3.1], [-0.9, 2.9], [-0.5, 2.6], [2.3, -1.1], [2.7, -1.5]]
    assert points["train"][1].tolist() == [0, 0, 0, 1, 1]
    assert points["test"][0].tolist() == [[-0.8, 2.8], [2.6, -1.6]]
    assert points["test"][1].tolist() == [0, 1]


def test_a_generated_line_has_its_slope_intercept_and_noise() -> None:
    x, y = (column[:, 0] for column in tensors(Line(slope=2.0, intercept=3.0, noise=0.1))["train"])
    solution = torch.linalg.lstsq(torch.stack([x, torch.ones_like(x)], dim=1), y[:, None]).solution[:, 0]
    assert solution.tolist() == pytest.approx([2, 3], abs=0.005)
    assert (y - 2 * x - 3).std().item() == pytest.approx(0.1, rel=0.05)


def test_digits_are_the_real_ones_each_in_one_split() -> None:
    data = Digits()
    splits = [*tensors(data).values()]
    counts = torch.bincount(torch.cat([classes for _, classes in splits]), minlength=10)
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # of the UCI repository's page
    assert np.array_equal(read_table(), np.column_stack(load_digits(return_X_y=True)))
    pixels, _ = data.on_after_batch_transfer(splits[0], 0)
    assert [pixels.mean().item(), pixels.std().item()] == pytest.approx([0, 1], abs=0.005)


INVALID: dict[str, tuple[Any, dict[str, Any]]] = {
    "data.val_size=1.5: it is a number of samples, or a share below 1": (Digits, {"val_size": 1.5}),
    "batch_size=0: it must be 1 or more": (Digits, {"batch_size": 0}),
    "data.samples=1: it must be 2 or more": (Points, {"samples": 1}),
    "data.samples=55001: it must be from 1 to 55000": (MNIST, {"samples": 55_001}),
}


@pytest.mark.parametrize("sentence", INVALID)
def test_wrong_values_are_rejected(sentence: str, mnist: str) -> None:
    kind, arguments = INVALID[sentence]
    with pytest.raises(ConfigError, match=f"^{sentence}.*; write "):
        kind(**arguments, **({"root": mnist} if kind is MNIST else {})).setup()
