"""Print the shapes of each replica's first batch."""

from typing import TYPE_CHECKING, Any

from torch import nn

from lockstep.structures import tensors_in

if TYPE_CHECKING:
    from lockstep.plan import Plan


def show_shapes(plan: "Plan", net: nn.Module) -> None:
    """Have every replica, in a process or a thread of its own, print its first shapes, where the plan asks for it."""
    left = plan.strategy.layout(plan.devices).replicas

    def show(module: nn.Module, inputs: Any, outputs: Any) -> None:
        nonlocal left
        if left > 0 and module.training:
            left -= 1
            returned = " ".join(str(tuple(own.shape)) for own in tensors_in(outputs))
            print(f"a replica sees {tuple(inputs[0].shape)} and returns {returned}", flush=True)

    if plan.show_shapes:
        net.register_forward_hook(show)
