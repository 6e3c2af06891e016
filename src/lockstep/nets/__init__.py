"""The nets: pure modules, built from the data's shape alone; they know no rank, device, logger or engine."""

from collections.abc import Callable

from torch import nn

from lockstep.nets.cnn import CNN
from lockstep.nets.lenet import LeNet
from lockstep.nets.linear import Linear
from lockstep.nets.mlp import MLP
from lockstep.nets.split_cnn import SplitCNN

NETS: dict[str, Callable[..., nn.Module]] = {
    "linear": Linear,
    "mlp": MLP,
    "cnn": CNN,
    "lenet": LeNet,
    "split_cnn": SplitCNN,
}


def create(name: str, shape: tuple[int, ...], outputs: int, **options: object) -> nn.Module:
    """The net called `name` for samples of `shape` and so many outputs (classes, or regressed values)."""
    return NETS[name](shape, outputs, **options)
