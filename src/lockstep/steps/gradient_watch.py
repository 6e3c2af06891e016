"""Refuse manual optimization that steps by gradients which are not averaged over ranks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn

from lockstep.config_error import require


class GradientWatch:
    """Watches which parameters get gradients by `loss.backward()` instead of `self.manual_backward(loss)`.

    Parameters are numbered by their position in the module, since a strategy may replace the objects.
    """

    def __init__(self, name: str, module: Any, ranks: int) -> None:
        self.name, self.module = name, module
        self.active = ranks > 1 and not module.automatic_optimization
        self.within_backward = False
        self.watched: set[nn.Parameter] = set()
        self.not_averaged: set[int] = set()

    def watch(self) -> None:
        """Register a hook on each parameter that has none yet."""
        for index, parameter in enumerate(self.module.parameters()):
            if parameter.requires_grad and parameter not in self.watched:
                self.watched.add(parameter)
                parameter.register_hook(partial(self._note, index))

    def _note(self, index: int, _gradient: Tensor) -> None:
        if not self.within_backward:
            self.not_averaged.add(index)

    @contextmanager
    def averaging(self) -> Iterator[None]:
        """Return a context of a backward pass whose gradients are averaged over ranks."""
        self._forget_cleared()
        self.within_backward = True
        try:
            yield
        finally:
            self.within_backward = False

    def _forget_cleared(self) -> None:
        """Forget parameters whose gradients were set to None."""
        if self.not_averaged:
            parameters = [*self.module.parameters()]
            self.not_averaged = {index for index in self.not_averaged if parameters[index].grad is not None}

    def require_averaged(self, parameters: Sequence[Tensor]) -> None:
        """Raise if an optimizer is about to step by gradients that differ between ranks.

        Raises:
            ConfigError: names the module.
        """
        self._forget_cleared()
        if self.not_averaged:
            indices = {id(parameter): index for index, parameter in enumerate(self.module.parameters())}
            averaged = self.not_averaged.isdisjoint(indices.get(id(parameter), -1) for parameter in parameters)
            reason = "it steps by gradients of loss.backward(), which nobody averages over ranks"
            require(averaged, "model", self.name, reason, "one that calls self.manual_backward(loss) instead")
