from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

from lockstep.nets.cnn import CNN
from lockstep.nets.lenet import LeNet
from lockstep.nets.linear import Linear
from lockstep.nets.mlp import MLP
from lockstep.nets.split_cnn import SplitCNN

IMAGE = (1, 28, 28)


def count(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


CONVOLUTIONS = (9 * 16 + 16) + (9 * 16 * 32 + 32) + (9 * 32 * 64 + 64) + (9 * 64 * 128 + 128)


# the counts are worked out from the layers' sizes: weights + biases
@pytest.mark.parametrize(
    ("kind", "shape", "outputs", "options", "parameters"),
    [
        (Linear, (1,), 1, {}, 1 + 1),
        (Linear, IMAGE, 10, {}, 784 * 10 + 10),
        (MLP, (2,), 2, {"hidden": (30, 20)}, (2 * 30 + 30) + (30 * 20 + 20) + (20 * 2 + 2)),
        (LeNet, IMAGE, 10, {"dropout": 0.5}, 21_840),
        (SplitCNN, IMAGE, 10, {}, 21_840),
        (CNN, IMAGE, 10, {"norm": "none"}, CONVOLUTIONS + (2048 * 1024 + 1024) + (1024 * 128 + 128) + (128 * 10 + 10)),
    ],
)
def test_layers_have_the_sizes_of_the_source(
    kind: Callable[..., nn.Module], shape: tuple[int, ...], outputs: int, options: dict[str, object], parameters: int
) -> None:
    net = kind(shape, outputs, **options)
    assert count(net) == parameters
    assert net(torch.zeros(3, *shape)).shape == (3, outputs)


@pytest.mark.parametrize("kind", [partial(CNN, norm="batch"), partial(LeNet, dropout=0.0), SplitCNN])
def test_images_may_have_any_size(kind: Callable[..., nn.Module]) -> None:
    """Pooling makes 4×4 features of them, so the number of weights stays."""
    for size in ((32, 32), (64, 48)):
        net = kind((3, *size), 10)
        assert net(torch.zeros(2, 3, *size)).shape == (2, 10)
        assert count(net) == count(kind((3, 28, 28), 10))


def test_the_stages_of_split_cnn_are_all_of_it() -> None:
    net = SplitCNN(IMAGE, 10)
    assert sum(map(count, net.stages)) == count(net)
    x = torch.randn(2, *IMAGE)
    expected = net.block2(net.block1(x))
    expected = net.linear2(net.linear1(expected))
    assert torch.equal(net(x), expected)
