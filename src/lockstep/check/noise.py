"""Random numbers that are the same for every sample, so that what a step draws does not depend on the layout."""

from typing import Any

import torch
from torch import Tensor

from lockstep.base.private_api.torch import TorchDispatchMode

IN_PLACE = ("uniform_", "normal_", "bernoulli_", "exponential_", "random_", "geometric_", "cauchy_", "log_normal_")


class Noise(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes in `drew` whether a call within the block draws from a generator that it is passed.

    freezes: torch draws a pattern along the last dimension, and repeats it for all others. The n-th call since
    `restart` has the same pattern on every rank; the generators stay as they are. Draws that depend on other rows,
    such as multinomial, are left alone, and noted. One keeps a sample in dropout of entire samples.
    """

    def __init__(self, freezes: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.freezes, self.calls, self.drew = freezes, 0, False

    def restart(self) -> None:
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name, drawn = kwargs or {}, func.__name__.partition(".")[0], None
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        if self.freezes:
            self.calls += name != "randperm"
            drawn = self.drawn(name, func, args, {**kwargs, "generator": None} if "generator" in kwargs else kwargs)
        self.drew |= drawn is None and kwargs.get("generator") is not None
        return func(*args, **kwargs) if drawn is None else drawn

    def drawn(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Return the frozen numbers of a call, or None if it is left alone."""
        if name == "randperm":
            return torch.arange(args[0], **{key: value for key, value in kwargs.items() if key != "generator"})
        if name == "bernoulli_":
            probability = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
            return args[0].copy_(self.uniform(args[0]) < probability)
        if name in IN_PLACE:
            return args[0].copy_(self.pattern(args[0], lambda like: func(torch.empty_like(like), *args[1:], **kwargs)))
        if name in ("randn_like", "rand_like", "randint_like"):
            return self.pattern(args[0], lambda like: func(like, *args[1:], **kwargs)).clone()
        if name in ("randn", "rand", "randint"):
            at = next(place for place, each in enumerate(args) if isinstance(each, list | tuple))
            like = torch.empty(args[at], device="meta")
            return self.pattern(like, lambda like: func(*args[:at], [*like.shape], *args[at + 1 :], **kwargs)).clone()
        if name == "bernoulli":
            return (self.uniform(args[0]) < args[0]).to(args[0].dtype)
        if name == "normal" and any(isinstance(each, Tensor) for each in args):
            mean, std = args[0], args[1] if len(args) > 1 else 1.0
            return mean + std * self.pattern(mean + 0 * std, torch.randn_like)
        return None

    def uniform(self, like: Tensor) -> Tensor:
        """Return numbers between 0 and 1; 0 if a pattern has a single one, which keeps a sample."""
        pattern = self.pattern(like, lambda like: torch.rand(like.shape))
        return pattern if corner(like).numel() > 1 else torch.zeros(like.shape)

    def pattern(self, like: Tensor, draw: Any) -> Tensor:
        """Draw a pattern under the seed of this call, and repeat it."""
        state = torch.get_rng_state()
        torch.default_generator.manual_seed(self.calls)  # not those of GPUs, which takes ten times as long
        try:
            drawn: Tensor = draw(corner(like)).expand(like.shape)
        finally:
            torch.set_rng_state(state)
        return drawn


def corner(tensor: Tensor) -> Tensor:
    """Return the first entry along all dimensions but the last; of a vector the first number."""
    return tensor[(slice(0, 1),) * max(tensor.dim() - 1, min(1, tensor.dim()))]
