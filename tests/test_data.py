import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from lockstep import data
from lockstep.data.digits import read_rows
from lockstep.data.line import fitted_line
from lockstep.data.tensors import Split
from lockstep.schemas import Digits, Line, Points, RandomRegression

DIGITS = Digits("digits", val_size=180, test_size=360)


def test_pixels_are_scaled_in_a_batch_alone_and_classes_stay() -> None:
    images = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)
    split = Split(images, torch.tensor([1]), mean=0.5, std=0.25)
    inputs, targets = split.as_float(split[torch.tensor([0])], torch.float64)
    assert inputs.tolist() == [[[[-2.0, 2.0]]]]
    assert targets.dtype == torch.int64
    assert images.tolist() == [[[[0, 255]]]]


def test_the_seven_points_are_those_of_the_source() -> None:
    points = data.load(Points("points", samples=None))
    assert points.train.inputs.tolist() == [[-1.2, 3.1], [-0.9, 2.9], [-0.5, 2.6], [2.3, -1.1], [2.7, -1.5]]
    assert points.train.targets.tolist() == [0, 0, 0, 1, 1]
    assert points.test.inputs.tolist() == [[-0.8, 2.8], [2.6, -1.6]]
    assert points.test.targets.tolist() == [0, 1]
    assert len(points.val) == 0


def test_generated_points_surround_the_same_classes() -> None:
    points = data.load(Points("points", samples=2000))
    assert len(points.train) == 2000
    centre = points.train.inputs[points.train.targets == 0].mean(dim=0)
    by_hand = torch.tensor([-2.6 / 3, 8.6 / 3], dtype=torch.float64)
    assert torch.allclose(centre, by_hand, atol=4 * 0.5 / 1000**0.5)  # four standard errors


def test_a_generated_line_has_its_slope_intercept_and_noise() -> None:
    choice = Line("line", slope=2.0, intercept=3.0, noise=0.1, samples=10_000, inputs=(), val_size=500, predict=())
    line = data.load(choice)
    assert [len(split) for split in line.datasets.values()] == [10_000, 500, 1000]
    x, y = line.train.inputs[:, 0], line.train.targets[:, 0]
    design = torch.stack([x, torch.ones_like(x)], dim=1)
    solution = torch.linalg.lstsq(design, y[:, None]).solution[:, 0]
    assert solution.tolist() == pytest.approx([2, 3], abs=0.005)
    assert (y - 2 * x - 3).std().item() == pytest.approx(0.1, rel=0.05)
    assert torch.equal(data.load(choice).test.targets, line.test.targets)


def test_digits_are_the_real_ones_each_in_one_split() -> None:
    digits = data.load(DIGITS)
    splits = digits.datasets.values()
    assert [len(split) for split in splits] == [1257, 180, 360]
    assert digits.shape == (1, 28, 28)
    assert digits.train.inputs.dtype == torch.uint8
    counts = torch.bincount(torch.cat([split.targets for split in splits]), minlength=10)
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # of the UCI repository's page
    ink = sorted(torch.cat([split.inputs.sum(dim=(1, 2, 3)) for split in splits]).tolist())
    originals = sorted((load_digits().images.sum(axis=(1, 2)) * 255 / 16 * 400 / 64).tolist())
    assert ink == pytest.approx(originals, rel=0.05), "enlarging 8×8 to 20×20 spreads each digit's ink over 400/64"
    pixels, _ = digits.train.as_float(digits.train[torch.arange(1257)], torch.float64)
    assert [pixels.mean().item(), pixels.std().item()] == pytest.approx([0, 1], abs=0.005)


def test_scikit_learns_file_is_read_as_by_its_loader() -> None:
    assert np.array_equal(read_rows(), np.column_stack(load_digits(return_X_y=True)))


@pytest.mark.parametrize(
    "choice",
    [
        DIGITS,
        Points("points", samples=None),
        Points("points", samples=20),
        Line("line", 2.0, 0.0, noise=0.0, samples=7, inputs=(1.0, 2.0, 3.0), val_size=4, predict=()),
        RandomRegression("random_regression", features=5, outputs=2, noise=0.1, samples=90),
    ],
)
def test_a_schema_says_how_many_samples_are_loaded(choice: Digits | Points | Line | RandomRegression) -> None:
    splits = data.load(choice)
    assert (len(splits.train), len(splits.val)) == (choice.train_samples, choice.val_size)
    assert len(splits.test) == getattr(choice, "test_size", len(splits.test))


def test_the_line_of_a_net() -> None:
    net = nn.Linear(1, 1).double()
    with torch.no_grad():
        net.weight.fill_(2.0)
        net.bias.fill_(0.5)
    assert fitted_line(net, (7.0, -0.25)) == {"slope": 2.0, "intercept": 0.5, "predict/7": 14.5, "predict/-0.25": 0.0}


def test_rows_follow_a_hidden_linear_map() -> None:
    rows = data.load(RandomRegression("random_regression", features=5, outputs=2, noise=0.1, samples=90))
    assert (rows.shape, rows.outputs, len(rows.train), len(rows.val), len(rows.test)) == ((5,), 2, 90, 0, 1000)
    slopes = torch.linalg.lstsq(rows.train.inputs, rows.train.targets).solution
    residual = rows.test.inputs @ slopes - rows.test.targets
    assert residual.std().item() == pytest.approx(0.1, rel=0.1)
