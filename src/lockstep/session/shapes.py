"""The shapes of a batch as each replica of a net sees them, printed once."""

from typing import Any

from torch import nn

from lockstep.structures import tensors_in


def show_shapes(net: nn.Module, replicas: int) -> None:
    """Have each of the net's replicas, in a process or a thread, print the shapes of its first training batch."""
    remaining = replicas

    def show(module: nn.Module, inputs: Any, outputs: Any) -> None:
        nonlocal remaining
        if remaining > 0 and module.training:
            remaining -= 1
            shapes = " ".join(str(tuple(tensor.shape)) for tensor in tensors_in(outputs))
            print(f"a replica sees {tuple(inputs[0].shape)} and returns {shapes}", flush=True)

    net.register_forward_hook(show)
