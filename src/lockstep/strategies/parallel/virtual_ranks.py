"""N ranks in one process, in turn: each with its share of the batch, its generators and its buffers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from torch import Tensor, nn

from lockstep.base.random_state import preserve_generators, random_state, restore_random_state, seed_by, seed_rank


class VirtualRanks:
    """Rank r computes rows r, r + N, … of a batch, as under DDP.

    Rank 0 uses the generators of this process and the net's own buffers; `random` and `buffers` are the others'.
    evaluation: during an evaluation, the numbers by which, and by the rank, generators are seeded.
    """

    evaluation: tuple[int, ...] = ()

    def __init__(self, net: nn.Module, count: int, seed: int) -> None:
        self.net, self.count = net, count
        self.random: dict[int, Mapping[str, Any]] = {}
        with preserve_generators():
            for rank in range(1, count):
                seed_rank(seed, rank)
                self.random[rank] = random_state([])
        self.buffers: dict[int, dict[str, Tensor]] = {}

    def begin(self) -> None:
        """Copy the buffers for each rank above 0, before rank 0 changes its own."""
        for rank in range(1, self.count):
            if rank not in self.buffers:
                self.buffers[rank] = self._copies()

    @contextmanager
    def as_rank(self, rank: int) -> Iterator[None]:
        """Give the net the buffers and the generators of a rank, as the rank left them. An error names the rank."""
        try:
            with nullcontext() if rank == 0 else self._state_of(rank):
                yield
        except Exception as error:
            error.add_note(f"In rank {rank} of strategy=virtual.")
            raise

    @contextmanager
    def _state_of(self, rank: int) -> Iterator[None]:
        buffers_of_rank_0 = self._buffers()
        self._set(self.buffers.get(rank, {}))
        with preserve_generators():
            if self.evaluation:
                seed_by(*self.evaluation, rank)
            else:
                restore_random_state(self.random[rank], [])
            try:
                yield
            finally:
                if not self.evaluation:
                    self.random[rank] = random_state([])
        if rank in self.buffers:
            self.buffers[rank] = self._buffers()
            self._set(buffers_of_rank_0)

    def _buffers(self) -> dict[str, Tensor]:
        return dict(self.net.named_buffers(remove_duplicate=False))

    def _copies(self) -> dict[str, Tensor]:
        return {name: buffer.clone() for name, buffer in self._buffers().items()}

    def _set(self, buffers: Mapping[str, Tensor]) -> None:
        for name, buffer in buffers.items():
            module, _, attribute = name.rpartition(".")
            setattr(self.net.get_submodule(module), attribute, buffer)

    # checkpoints

    def states(self) -> list[tuple[Mapping[str, Any], dict[str, Tensor]]]:
        """Return the generators and the persistent buffers, by name, of each rank above 0."""
        persistent, shared = self.net.state_dict().keys(), self._buffers()
        return [
            (random, {name: value for name, value in self.buffers.get(rank, shared).items() if name in persistent})
            for rank, random in self.random.items()
        ]

    def restore(self, states: Sequence[tuple[Mapping[str, Any], Mapping[str, Tensor]]]) -> None:
        """Restore what `states` has returned, or the states of the ranks of DDP."""
        for rank, (random, buffers) in enumerate(states, start=1):
            self.random[rank], self.buffers[rank] = random, self._copies()
            for name in buffers.keys() & self.buffers[rank].keys():
                self.buffers[rank][name].copy_(buffers[name])
