"""The nets: sizes of their layers, shapes of their outputs, and what they refuse."""

import re
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

from lockstep.base.config_error import ConfigError
from lockstep.nets import CNN, MLP, CharRNN, LeNet, Linear, SplitCNN

IMAGE = (1, 28, 28)


def count(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


CONVOLUTIONS = (9 * 16 + 16) + (9 * 16 * 32 + 32) + (9 * 32 * 64 + 64) + (9 * 64 * 128 + 128)


# the counts are worked out from the layers' sizes: weights + biases
@pytest.mark.parametrize(
    ("kind", "shape", "parameters"),
    [
        (Linear, IMAGE, 784 * 10 + 10),
        (partial(MLP, hidden=(30, 20)), (2,), (2 * 30 + 30) + (30 * 20 + 20) + (20 * 10 + 10)),
        (LeNet, IMAGE, 21_840),
        (SplitCNN, IMAGE, 21_840),
        (partial(CNN, norm="none"), IMAGE, CONVOLUTIONS + (2048 * 1024 + 1024) + (1024 * 128 + 128) + (128 * 10 + 10)),
    ],
)
def test_layers_have_the_sizes_of_the_source(
    kind: Callable[..., nn.Module], shape: tuple[int, ...], parameters: int
) -> None:
    net = kind(shape, 10)
    assert count(net) == parameters
    assert net(torch.zeros(3, *shape)).shape == (3, 10)


@pytest.mark.parametrize("kind", [CNN, LeNet, SplitCNN])
def test_images_may_have_any_size(kind: Callable[..., nn.Module]) -> None:
    """Pooling makes 4×4 features of them, so the number of weights stays."""
    net = kind((3, 64, 48), 10)
    assert net(torch.zeros(2, 3, 64, 48)).shape == (2, 10)
    assert count(net) == count(kind((3, 28, 28), 10))


def test_the_stages_of_split_cnn_are_all_of_it() -> None:
    net = SplitCNN(IMAGE, 10)
    assert sum(map(count, net.stages)) == count(net)


def test_tokens_become_logits_at_each_place() -> None:
    assert CharRNN(num_outputs=7, width=4)(torch.zeros(2, 5, dtype=torch.long)).shape == (2, 5, 7)


def test_a_perceptron_may_return_as_many_numbers_as_it_gets() -> None:
    assert MLP(sample_shape=(2, 3), num_outputs=None, hidden=[4])(torch.zeros(5, 2, 3)).shape == (5, 6)


@pytest.mark.parametrize(
    ("kind", "shape", "options", "sentence"),
    [
        (MLP, (2,), {"hidden": [3, 0]}, "model.net.hidden=[3,0]: it lists layer sizes of 1 or more; write model.net"),
        (CNN, IMAGE, {"norm": "layer"}, "model.net.norm=layer: it is no norm; write model.net.norm=batch, or none."),
        (LeNet, IMAGE, {"dropout": 1.0}, "model.net.dropout=1.0: it must be at least 0 and below 1; write model.net."),
        (LeNet, (2,), {}, "model.net=LeNet: it takes images, and the data has samples of shape (2,); write model=mlp"),
        (CNN, (1, 28, 15), {}, "model.net=CNN: it takes images of 16×16 or more, and those of the data are 28×15; wri"),
    ],
)
def test_impossible_sizes_are_refused_in_a_sentence(
    kind: Callable[..., nn.Module], shape: tuple[int, ...], options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        kind(shape, 2, **options)
