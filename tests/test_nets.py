"""The nets: sizes of their layers, shapes of their outputs, and what they refuse."""

import re
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

from lockstep.base.config_error import ConfigError
from lockstep.nets import CNN, MLP, CharRNN, LeNet, Linear, SplitCNN, Transformer

IMAGE = (1, 28, 28)
NAMES = ("weight", "bias")


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
    net = Transformer((8,), num_outputs=7, width=4, heads=2).eval()
    tokens = torch.arange(5)[None]
    logits, others = net(tokens), net(torch.tensor([[0, 1, 2, 6, 6]]))
    assert logits.shape == (1, 5, 7)
    assert torch.equal(logits[:, :3], others[:, :3]), "a place sees what follows it"
    assert not torch.isclose(logits[:, 3:], others[:, 3:]).all(2).any()


def test_a_transformer_is_that_of_torch() -> None:
    """Layer by layer nn.TransformerEncoderLayer, which normalises first, without its mask on dropout."""
    net = Transformer((8,), num_outputs=7, width=12, layers=2, heads=3, dropout=0.0)
    hidden = net.embedded.tokens(torch.arange(7)[None]) + net.embedded.positions.weight[:7]
    for block in net.blocks:
        layer = nn.TransformerEncoderLayer(12, 3, 48, 0.0, "gelu", batch_first=True, norm_first=True)
        projections = (block.query, block.key, block.value)
        attention = {f"in_proj_{name}": torch.cat([getattr(each, name) for each in projections]) for name in NAMES}
        parts = {"self_attn.out_proj": block.mixed, "linear1": block.hidden, "linear2": block.output}
        parts |= {"norm1": block.norm_attention, "norm2": block.norm_hidden}
        weights = {f"{part}.{name}": getattr(module, name) for part, module in parts.items() for name in NAMES}
        layer.load_state_dict({**weights, **{f"self_attn.{name}": value for name, value in attention.items()}})
        hidden = layer(hidden, nn.Transformer.generate_square_subsequent_mask(7), is_causal=True)
    expected = net.head[0](hidden) @ net.embedded.tokens.weight.T
    torch.testing.assert_close(net(torch.arange(7)[None]), expected)
    assert count(net) == sum(map(count, (net.embedded, net.blocks, net.head[0])))


def test_a_perceptron_may_return_as_many_numbers_as_it_gets() -> None:
    assert MLP(sample_shape=(2, 3), num_outputs=None, hidden=[4])(torch.zeros(5, 2, 3)).shape == (5, 6)


@pytest.mark.parametrize(
    ("kind", "shape", "options", "sentence"),
    [
        (MLP, (2,), {"hidden": [3, 0]}, "model.net.hidden=[3,0]: it lists layer sizes of 1 or more; write model.net"),
        (LeNet, IMAGE, {"dropout": 1.0}, "model.net.dropout=1.0: it must be at least 0 and below 1; write model.net."),
        (LeNet, (2,), {}, "model.net=LeNet: it takes images, and the data has samples of shape (2,); write model=mlp"),
        (Transformer, (8,), {"heads": 3}, "model.net.heads=3: heads divide the width, 128; write model.net.heads=4."),
        (CNN, (1, 28, 15), {}, "model.net=CNN: it takes images of 16×16 or more, and those of the data are 28×15; wri"),
    ],
)
def test_impossible_sizes_are_refused_in_a_sentence(
    kind: Callable[..., nn.Module], shape: tuple[int, ...], options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        kind(shape, 2, **options)
