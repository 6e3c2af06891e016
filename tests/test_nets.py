import pytest
import torch
from torch import nn

from lockstep import nets
from lockstep.nets.split_cnn import SplitCNN

IMAGE = (1, 28, 28)


def count(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


# the counts are worked out from the layers' sizes: weights + biases
@pytest.mark.parametrize(
    ("name", "shape", "outputs", "options", "parameters"),
    [
        ("linear", (1,), 1, {}, 1 + 1),
        ("linear", IMAGE, 10, {}, 784 * 10 + 10),
        ("mlp", (2,), 2, {"hidden": (30, 20)}, (2 * 30 + 30) + (30 * 20 + 20) + (20 * 2 + 2)),
        ("lenet", IMAGE, 10, {"dropout": 0.5}, 21_840),
        ("split_cnn", IMAGE, 10, {}, 21_840),
        (
            "cnn",
            IMAGE,
            10,
            {"norm": "none"},
            (9 * 16 + 16)
            + (9 * 16 * 32 + 32)
            + (9 * 32 * 64 + 64)
            + (9 * 64 * 128 + 128)
            + (2048 * 1024 + 1024)
            + (1024 * 128 + 128)
            + (128 * 10 + 10),
        ),
    ],
)
def test_layers_have_the_sizes_of_the_source(
    name: str, shape: tuple[int, ...], outputs: int, options: dict[str, object], parameters: int
) -> None:
    net = nets.create(name, shape, outputs, **options)
    assert count(net) == parameters
    assert net(torch.zeros(3, *shape)).shape == (3, outputs)


def test_batch_norm_has_scale_and_shift_for_each_channel_and_takes_the_biases_place() -> None:
    plain, normed = (nets.create("cnn", IMAGE, 10, norm=norm) for norm in ("none", "batch"))
    assert count(normed) - count(plain) == (2 - 1) * (16 + 32 + 64 + 128)
    assert not list(plain.buffers())


def test_the_stages_of_split_cnn_are_all_of_it() -> None:
    net = nets.create("split_cnn", IMAGE, 10)
    assert isinstance(net, SplitCNN)
    assert sum(map(count, net.stages)) == count(net)
    x = torch.randn(2, *IMAGE)
    expected = net.block2(net.block1(x))
    expected = net.linear2(net.linear1(expected))
    assert torch.equal(net(x), expected)


def test_dropout_works_in_training_alone() -> None:
    net, x = nets.create("lenet", IMAGE, 10, dropout=0.5), torch.randn(2, *IMAGE)
    assert not torch.equal(net(x), net(x))
    net.eval()
    assert torch.equal(net(x), net(x))
    without = nets.create("lenet", IMAGE, 10, dropout=0.0)
    assert torch.equal(without(x), without(x))


@pytest.mark.parametrize("name", ["linear", "mlp", "cnn", "lenet", "split_cnn"])
def test_an_empty_batch_gives_zero_gradients(name: str) -> None:
    options: dict[str, dict[str, object]] = {
        "mlp": {"hidden": (4,)},
        "cnn": {"norm": "batch"},
        "lenet": {"dropout": 0.5},
    }
    net = nets.create(name, IMAGE, 10, **options.get(name, {}))
    net(torch.zeros(0, *IMAGE)).sum().backward()
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in net.parameters())
    assert all(torch.isfinite(buffer).all() for buffer in net.buffers())
