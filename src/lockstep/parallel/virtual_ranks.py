"""N ranks in one process, one after the other: each with its share of the batch, its generators and its buffers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from lockstep.random_state import random_state, restore_random_state, seed_rank

Buffers = dict[tuple[nn.Module, str], Tensor]


class VirtualRanks:
    """Called like the net, on the whole batch: rank r has its rows r, r + N, …, as under DDP.

    This process is rank 0: the generators and the net's own buffers are its. The others draw and count beside it.
    """

    def __init__(self, net: nn.Module, count: int, seed: int) -> None:
        self.net, self.count = net, count
        self.random: dict[int, Mapping[str, Any]] = {}
        rank_zero = random_state([])
        for rank in range(1, count):
            seed_rank(seed, rank)
            self.random[rank] = random_state([])
        restore_random_state(rank_zero, [])
        self.buffers: dict[int, Buffers] = {}
        RANKS[net] = self

    def __call__(self, inputs: Tensor) -> Tensor:
        if not self.net.training:
            self.buffers = {}  # as under DDP all ranks take over rank 0's to evaluate
        for rank in range(1, self.count):
            if rank not in self.buffers and self.net.training:  # before rank 0 changes its own
                self.buffers[rank] = {place: buffer.clone() for place, buffer in self._buffers().items()}
        shares = [torch.arange(rank, len(inputs), self.count, device=inputs.device) for rank in range(self.count)]
        parts = []
        for rank, rows in enumerate(shares):
            if len(rows):
                with self._as_rank(rank):
                    parts.append(self.net(inputs.index_select(0, rows)))
        return torch.cat(parts).index_select(0, torch.cat(shares).argsort())

    @contextmanager
    def _as_rank(self, rank: int) -> Iterator[None]:
        """The net's buffers and the generators are that rank's, and go on where they were."""
        if rank == 0:
            yield
            return
        own, random = self._buffers(), random_state([])
        self._set(self.buffers.get(rank, {}))
        restore_random_state(self.random[rank], [])
        try:
            yield
        finally:
            self.random[rank] = random_state([])
            restore_random_state(random, [])
            if rank in self.buffers:
                self.buffers[rank] = self._buffers()
                self._set(own)

    def _buffers(self) -> Buffers:
        return {
            (module, name): buffer
            for module in self.net.modules()
            for name, buffer in module.named_buffers(recurse=False, remove_duplicate=False)
        }

    def _set(self, buffers: Buffers) -> None:
        for (module, name), buffer in buffers.items():
            setattr(module, name, buffer)

    # checkpoints

    def states(self) -> list[tuple[Mapping[str, Any], dict[str, Tensor]]]:
        """Of each rank above 0 its generators and its buffers, by name."""
        names = {module: name for name, module in self.net.named_modules()}
        kept = self.net.state_dict().keys()
        states = []
        for rank in range(1, self.count):
            named = {
                f"{names[module]}.{name}".lstrip("."): buffer
                for (module, name), buffer in (self.buffers.get(rank) or self._buffers()).items()
            }
            states.append((self.random[rank], {name: own for name, own in named.items() if name in kept}))
        return states

    def restore(self, states: Sequence[tuple[Mapping[str, Any], Mapping[str, Tensor]]]) -> None:
        """What `states` gave, or what the ranks of DDP had."""
        for rank, (random, buffers) in enumerate(states, start=1):
            self.random[rank] = random
            own = {place: buffer.clone() for place, buffer in self._buffers().items()}
            names = {module: name for name, module in self.net.named_modules()}
            for (module, name), buffer in own.items():
                saved = buffers.get(f"{names[module]}.{name}".lstrip("."))
                if saved is not None:
                    buffer.copy_(saved)
            self.buffers[rank] = own


RANKS: "WeakKeyDictionary[nn.Module, VirtualRanks]" = WeakKeyDictionary()
"""By their net."""
