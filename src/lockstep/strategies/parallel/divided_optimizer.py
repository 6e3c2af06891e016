"""Optimizer states divided over ranks that have the same parameters and gradients (Rajbhandari et al., ZeRO, stage 1).

Each parameter is updated by one rank, which alone holds its state, and then broadcast. torch's ZeroRedundancyOptimizer
does so for an optimizer that it creates itself; here the optimizer exists, and schedules refer to it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from lockstep.base.messages import gather_values


class DividedOptimizer:
    """Hooks on an optimizer. Every rank must call `step`, and, if it `gathers` all states on rank 0, `state_dict`.

    owners: the rank that updates each parameter; a new one goes to the rank with the fewest numbers so far.
    updated: the parameters of a step, which have a gradient on every rank; no other tensor is written to.
    """

    def __init__(self, optimizer: Optimizer, gathers: bool = True) -> None:
        self.optimizer = optimizer
        self.owners: dict[Tensor, int] = {}
        self.sizes = [0] * dist.get_world_size()
        self.updated: list[Tensor] = []
        self.hidden: dict[Tensor, Tensor | None] = {}
        call_before_update(optimizer, self._hide_gradients)
        optimizer.register_step_post_hook(self._share_updates)
        if gathers:
            optimizer.register_state_dict_post_hook(self._gather_states)
        optimizer.register_load_state_dict_pre_hook(self._keep_states)

    def _parameters(self) -> list[Tensor]:
        """Return the parameters in their order, and let each have an owner."""
        parameters: list[Tensor] = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        for parameter in parameters:
            if parameter not in self.owners:
                self.owners[parameter] = owner = self.sizes.index(min(self.sizes))
                self.sizes[owner] += parameter.numel()
        return parameters

    def _hide_gradients(self, _: Optimizer) -> None:
        """Take the gradients from the parameters of other ranks: optimizers skip parameters without one."""
        self.updated = [parameter for parameter in self._parameters() if parameter.grad is not None]
        for parameter in self.updated:
            if self.owners[parameter] != dist.get_rank():
                self.hidden[parameter], parameter.grad = parameter.grad, None

    @torch.no_grad()
    def _share_updates(self, *_: object) -> None:
        """Give every rank all updated parameters, and put the gradients back."""
        for rank in range(dist.get_world_size()):
            if updated := [parameter for parameter in self.updated if self.owners[parameter] == rank]:
                flat = torch.cat([parameter.reshape(-1) for parameter in updated])
                dist.broadcast(flat, src=rank)
                chunks = torch.split(flat, [parameter.numel() for parameter in updated])
                for parameter, chunk in zip(updated, chunks, strict=True):
                    parameter.copy_(chunk.view_as(parameter))
        for parameter, gradient in self.hidden.items():
            parameter.grad = gradient
        self.hidden.clear()

    def _gather_states(self, _: Optimizer, saved: dict[str, Any]) -> None:
        """Add the states of the other ranks' parameters, on rank 0."""
        for states in gather_values(self._of_this_rank(saved)):
            saved["state"] |= states

    def _keep_states(self, _: Optimizer, saved: Mapping[str, Any]) -> dict[str, Any]:
        return {**saved, "state": self._of_this_rank(saved)}

    def _of_this_rank(self, saved: Mapping[str, Any]) -> dict[int, Any]:
        """Return the states of this rank's parameters in a state_dict, and those that are of no parameter."""
        owners = [self.owners[parameter] for parameter in self._parameters()]
        others = {index for index, owner in enumerate(owners) if owner != dist.get_rank()}
        return {key: state for key, state in saved["state"].items() if key not in others}


def call_before_update(optimizer: Any, function: Callable[[Any], None]) -> None:
    """Have each `step` of an optimizer call a function first, or after the closure that computes the gradient."""

    def before_step(optimizer: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        closure: Callable[[], Any] | None = options.get("closure") or (arguments[1] if len(arguments) > 1 else None)
        if closure is None:
            function(optimizer)
            return None

        def followed_closure() -> Any:
            loss = closure()
            function(optimizer)
            return loss

        return arguments[:1], {**options, "closure": followed_closure}

    optimizer.register_step_pre_hook(before_step)
