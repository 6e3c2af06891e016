"""Random numbers that are the same for every sample, so that what a step draws does not depend on the layout."""

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lockstep.base.private_api.torch import TorchDispatchMode

IN_PLACE = ("uniform_", "normal_", "bernoulli_", "exponential_", "random_", "geometric_", "cauchy_", "log_normal_")


class GeneratorSpy(TorchFunctionMode):
    """Notes in `drew` whether a call within the block draws from a generator that it is passed."""

    def __init__(self) -> None:
        super().__init__()
        self.drew = False

    def restart(self) -> None:
        """Do nothing: draws are not counted."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.drew |= isinstance(kwargs.get("generator"), torch.Generator)
        return func(*args, **kwargs)


class FrozenNoise(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within the block, torch draws a pattern along the last dimension, and repeats it for all others.

    The n-th call since `restart` has the same pattern on every rank; the generators stay as they are. Draws that
    depend on other rows, such as multinomial, are left alone; `drew` is whether one of them had a generator. One keeps
    a sample in dropout of entire samples.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls, self.drew = 0, False

    def restart(self) -> None:
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func.__name__.partition(".")[0]
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        if name == "randperm":
            return torch.arange(args[0], **{key: value for key, value in kwargs.items() if key != "generator"})
        self.calls += 1
        drawn = self.drawn(name, func, args, {**kwargs, "generator": None} if "generator" in kwargs else kwargs)
        self.drew |= drawn is None and kwargs.get("generator") is not None
        return func(*args, **kwargs) if drawn is None else drawn

    def drawn(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        if name in IN_PLACE:
            target, *rest = args
            if name == "bernoulli_":
                probability = (rest or [kwargs.get("p", 0.5)])[0]
                return target.copy_(self.uniform(target) < probability)
            pattern = self.seeded(lambda: func(torch.empty_like(corner(target)), *rest, **kwargs))
            return target.copy_(pattern.expand_as(target))
        if name in ("randn_like", "rand_like", "randint_like"):
            return self.seeded(lambda: func(corner(args[0]), *args[1:], **kwargs)).expand_as(args[0]).clone()
        if name in ("randn", "rand", "randint"):
            at = next(place for place, each in enumerate(args) if isinstance(each, list | tuple))
            size = [*args[at]]
            pattern = [*[1] * (len(size) - 1), size[-1] if len(size) > 1 else 1] if size else []
            drawn = self.seeded(lambda: func(*args[:at], pattern, *args[at + 1 :], **kwargs))
            return drawn.expand(size).clone()
        if name == "bernoulli":
            return (self.uniform(args[0]) < args[0]).to(args[0].dtype)
        if name == "normal" and any(isinstance(each, Tensor) for each in args):
            mean, std = args[0], args[1] if len(args) > 1 else 1.0
            like = mean + 0 * std
            return mean + std * self.seeded(lambda: torch.randn_like(corner(like)))
        return None

    def uniform(self, like: Tensor) -> Tensor:
        pattern = self.seeded(lambda: torch.rand(corner(like).shape))
        return torch.zeros(like.shape) if pattern.numel() == 1 else pattern.expand(like.shape)

    def seeded(self, draw: Any) -> Any:
        state = torch.get_rng_state()
        torch.manual_seed(self.calls)
        try:
            return draw()
        finally:
            torch.set_rng_state(state)


def corner(tensor: Tensor) -> Tensor:
    """Return the first entry along all dimensions but the last; of a vector the first number."""
    return tensor[(slice(0, 1),) * max(tensor.dim() - 1, min(1, tensor.dim()))]
