"""Refuses manual optimization that steps by gradients which are not averaged over ranks."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from lockstep.config_error import config_error


class GradientWatch:
    """Notes which parameters of a module get gradients by `loss.backward()` instead of `self.manual_backward(loss)`.

    Parameters are numbered by their places among the module's.
    """

    def __init__(self, name: str, module: Any, ranks: int) -> None:
        self.name, self.module = name, module
        self.active = ranks > 1 and not module.automatic_optimization
        self.backwards = 0
        self.within_backward = False
        self.watched: set[nn.Parameter] = set()
        self.not_averaged: set[int] = set()

    def watch(self) -> None:
        """Register a hook on each parameter that has none yet."""
        if not self.active:
            return
        for place, parameter in enumerate(self.module.parameters()):
            if parameter.requires_grad and parameter not in self.watched:
                self.watched.add(parameter)
                parameter.register_hook(partial(self._note, place))

    def _note(self, place: int, _gradient: Tensor) -> None:
        if not self.within_backward:
            self.not_averaged.add(place)

    def averaged(self, backward: Callable[[], None]) -> Callable[[], None]:
        """Return `backward`, whose gradients are averaged over ranks."""
        self.backwards += 1
        self._drop_cleared()

        def call() -> None:
            self.within_backward = True
            try:
                backward()
            finally:
                self.within_backward = False

        return call

    def _drop_cleared(self) -> None:
        """Drop parameters whose gradients have been set to None since."""
        if self.not_averaged:
            parameters = [*self.module.parameters()]
            self.not_averaged = {place for place in self.not_averaged if parameters[place].grad is not None}

    def require_averaged(self, parameters: Sequence[Tensor], resumed: bool) -> None:
        """Raise if an optimizer is about to step by gradients that differ between ranks.

        Args:
            parameters: those of the optimizer.
            resumed: whether gradients may come from the run that this one resumes.

        Raises:
            ConfigError: names the module.
        """
        if not self.active:
            return
        self._drop_cleared()
        places = {id(parameter): place for place, parameter in enumerate(self.module.parameters())}
        past = any(places.get(id(parameter)) in self.not_averaged for parameter in parameters)
        none_at_all = not self.backwards and not resumed and any(each.grad is not None for each in parameters)
        if past or none_at_all:
            reason = "it steps by gradients of loss.backward(), which nobody averages over ranks"
            raise config_error("model", self.name, reason, "one that calls self.manual_backward(loss) instead")
