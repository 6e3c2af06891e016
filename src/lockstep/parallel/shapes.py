"""Print the shapes of each replica's first batch."""

from typing import Any

from torch import nn

from lockstep.structures import tensors_in


def show_shapes(net: nn.Module, replicas: int) -> None:
    """Have each of the net's replicas, in a process or a thread of its own, print its first shapes."""
    left = replicas

    def show(module: nn.Module, inputs: Any, outputs: Any) -> None:
        nonlocal left
        if left > 0 and module.training:
            left -= 1
            returned = " ".join(str(tuple(own.shape)) for own in tensors_in(outputs))
            print(f"a replica sees {tuple(inputs[0].shape)} and returns {returned}", flush=True)

    net.register_forward_hook(show)
