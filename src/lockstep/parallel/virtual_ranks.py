"""N ranks in one process, one after the other: each with its share of the batch, its generators and its buffers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.random_state import generators_kept, random_state, restore_random_state, seed_rank
from lockstep.structures import map_tensors


class VirtualRanks:
    """Called like the net, on the whole batch: rank r has its rows r, r + N, …, as under DDP.

    This process is rank 0: the generators and the net's own buffers are its. The others draw and count beside it.
    """

    def __init__(self, net: nn.Module, count: int, seed: int) -> None:
        self.net, self.count = net, count
        self.random: dict[int, Mapping[str, Any]] = {}
        with generators_kept():
            for rank in range(1, count):
                seed_rank(seed, rank)
                self.random[rank] = random_state([])
        self.buffers: dict[int, dict[str, Tensor]] = {}

    def __call__(self, inputs: Tensor) -> Any:
        if not self.net.training:
            self.buffers = {}  # as under DDP all ranks take over rank 0's to evaluate
        if self.net.training:
            self.begin()
        shares = [torch.arange(rank, len(inputs), self.count, device=inputs.device) for rank in range(self.count)]
        parts = []
        for rank, rows in enumerate(shares):
            if len(rows):
                with self.as_rank(rank):
                    parts.append(self.net(inputs.index_select(0, rows)))
        order = torch.cat(shares).argsort()
        return map_tensors(lambda *own: torch.cat(own).index_select(0, order), *parts)

    def begin(self) -> None:
        """Before rank 0 changes its own buffers: each rank has some of its own."""
        for rank in range(1, self.count):
            if rank not in self.buffers:
                self.buffers[rank] = self._copies()

    @contextmanager
    def as_rank(self, rank: int) -> Iterator[None]:
        """The net's buffers and the generators are that rank's, and go on where they were. An error names the rank."""
        with _named(rank), self._state_of(rank):
            yield

    @contextmanager
    def _state_of(self, rank: int) -> Iterator[None]:
        if rank == 0:
            yield
            return
        own = self._buffers()
        self._set(self.buffers.get(rank, {}))
        with generators_kept():
            restore_random_state(self.random[rank], [])
            try:
                yield
            finally:
                self.random[rank] = random_state([])
        if rank in self.buffers:
            self.buffers[rank] = self._buffers()
            self._set(own)

    def _buffers(self) -> dict[str, Tensor]:
        return dict(self.net.named_buffers(remove_duplicate=False))

    def _copies(self) -> dict[str, Tensor]:
        return {name: buffer.clone() for name, buffer in self._buffers().items()}

    def _set(self, buffers: Mapping[str, Tensor]) -> None:
        for name, buffer in buffers.items():
            module, _, own = name.rpartition(".")
            setattr(self.net.get_submodule(module), own, buffer)

    # checkpoints

    def states(self) -> list[tuple[Mapping[str, Any], dict[str, Tensor]]]:
        """Of each rank above 0 its generators and its buffers, by name."""
        kept, shared = self.net.state_dict().keys(), self._buffers()
        own = [self.buffers.get(rank, shared) for rank in self.random]
        named = [{name: buffer for name, buffer in buffers.items() if name in kept} for buffers in own]
        return [*zip(self.random.values(), named, strict=True)]

    def restore(self, states: Sequence[tuple[Mapping[str, Any], Mapping[str, Tensor]]]) -> None:
        """What `states` gave, or what the ranks of DDP had."""
        for rank, (random, buffers) in enumerate(states, start=1):
            self.random[rank], self.buffers[rank] = random, self._copies()
            for name in buffers.keys() & self.buffers[rank].keys():
                self.buffers[rank][name].copy_(buffers[name])


@contextmanager
def _named(rank: int) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"In rank {rank} of strategy=virtual.")
        raise
