import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from lockstep.datamodules import Digits, Line, Points, RandomRegression
from lockstep.datamodules.digits import read_rows
from lockstep.datamodules.tensors import InMemory, Split, as_float


def loaded(data: InMemory) -> dict[str, Split]:
    data.prepare_data()
    data.setup("fit")
    return data.splits


def test_pixels_are_scaled_in_a_batch_alone() -> None:
    images = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)
    assert as_float(images, torch.float64, 0.5, 0.25).tolist() == [[[[-2.0, 2.0]]]]
    assert images.tolist() == [[[[0, 255]]]]


def test_the_seven_points_are_those_of_the_source() -> None:
    points = loaded(Points())
    assert points["train"][0].tolist() == [[-1.2, 3.1], [-0.9, 2.9], [-0.5, 2.6], [2.3, -1.1], [2.7, -1.5]]
    assert points["train"][1].tolist() == [0, 0, 0, 1, 1]
    assert points["test"][0].tolist() == [[-0.8, 2.8], [2.6, -1.6]]
    assert points["test"][1].tolist() == [0, 1]
    assert "val" not in points


def test_generated_points_surround_the_same_classes() -> None:
    inputs, targets = loaded(Points(samples=2000))["train"]
    assert len(inputs) == 2000
    centre = inputs[targets == 0].mean(dim=0)
    by_hand = torch.tensor([-2.6 / 3, 8.6 / 3], dtype=torch.float64)
    assert torch.allclose(centre, by_hand, atol=4 * 0.5 / 1000**0.5)  # four standard errors


def test_a_generated_line_has_its_slope_intercept_and_noise() -> None:
    line = loaded(Line(val_size=500))
    assert [len(split[0]) for split in line.values()] == [10_000, 500, 1000]
    x, y = (column[:, 0] for column in line["train"])
    design = torch.stack([x, torch.ones_like(x)], dim=1)
    solution = torch.linalg.lstsq(design, y[:, None]).solution[:, 0]
    assert solution.tolist() == pytest.approx([2, 3], abs=0.005)
    assert (y - 2 * x - 3).std().item() == pytest.approx(0.1, rel=0.05)
    assert torch.equal(loaded(Line(val_size=500))["test"][1], line["test"][1])


def test_digits_are_the_real_ones_each_in_one_split() -> None:
    digits = Digits()
    splits = loaded(digits).values()
    assert [len(split[0]) for split in splits] == [1257, 180, 360]
    images = digits.splits["train"][0]
    assert (images.dtype, images.shape[1:]) == (torch.uint8, digits.sample_shape)
    counts = torch.bincount(torch.cat([split[1] for split in splits]), minlength=10)
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # of the UCI repository's page
    ink = sorted(torch.cat([split[0].sum(dim=(1, 2, 3)) for split in splits]).tolist())
    originals = sorted((load_digits().images.sum(axis=(1, 2)) * 255 / 16 * 400 / 64).tolist())
    assert ink == pytest.approx(originals, rel=0.05), "enlarging 8×8 to 20×20 spreads each digit's ink over 400/64"
    pixels = as_float(images, torch.float64, digits.mean, digits.std)
    assert [pixels.mean().item(), pixels.std().item()] == pytest.approx([0, 1], abs=0.005)


def test_scikit_learns_file_is_read_as_by_its_loader() -> None:
    assert np.array_equal(read_rows(), np.column_stack(load_digits(return_X_y=True)))


def test_a_line_of_given_inputs() -> None:
    line = loaded(Line(inputs=(1.0, 2.0, 3.0), slope=2.0, intercept=0.5, noise=0.0, val_size=0))
    assert [split[0].shape[0] for split in line.values()] == [3, 1000]
    assert [column[:, 0].tolist() for column in line["train"]] == [[1.0, 2.0, 3.0], [2.5, 4.5, 6.5]]


def test_rows_follow_a_hidden_linear_map() -> None:
    data = RandomRegression(features=5, outputs=2, noise=0.1, samples=90)
    train, test = loaded(data).values()
    assert (data.sample_shape, data.num_outputs, len(train[0]), len(test[0])) == ((5,), 2, 90, 1000)
    slopes = torch.linalg.lstsq(*train).solution
    residual = test[0] @ slopes - test[1]
    assert residual.std().item() == pytest.approx(0.1, rel=0.1)
