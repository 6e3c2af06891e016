"""The optimizer steps that the record has no line of yet: what each rank keeps of them, and the lines of all ranks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.objectives.objective import LOSS, SAMPLES
from lockstep.plan import Plan
from lockstep.record.file import Line
from lockstep.run_files import FINGERPRINTED
from lockstep.sums.running import BatchStats, Scalar, stack_stats, to_floats, to_scalar

STRIDE = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: multiples of it are spread evenly, so that ids and positions do not collide."""

LoggedValues = Mapping[str, Mapping[str, tuple[Scalar, float, str]]]
"""Of a step what a LightningModule has logged, numbers and metrics, by name: a total, its weight, and how the ranks'
are joined (mean, whose total is of value times weight; sum, min, max).
"""


class StepBuffer:
    """`first_batch`, from 0, is the first of the epoch, from 0 too, that is not in the record.

    `carried` is the part of that batch's optimizer step before it: its sums so far, and its digest.
    """

    def __init__(
        self, plan: Plan, rank: int, epoch: int, first_batch: int, carried: Mapping[str, Tensor] | None = None
    ) -> None:
        self.plan, self.rank, self.epoch, self.first_batch = plan, rank, epoch, first_batch
        none = torch.zeros(len(plan.objective.sums), dtype=torch.float64)
        self.carried = carried or {"window": none, "ids": torch.tensor(0)}
        self.batches: list[BatchStats] = []
        self.ids: list[Tensor] = []
        self.norms: list[Scalar] = []
        self.norm_counts: list[int] = []
        self.rates: list[float] = []
        self.logged: list[LoggedValues] = []
        self.fingerprints: dict[int, Mapping[str, str]] = {}  # of those steps that have them, by their place here

    @property
    def next_batch(self) -> int:
        """Batches of the epoch that are done."""
        return self.first_batch + len(self.batches)

    def batch(self, stats: BatchStats, ids: Tensor) -> None:
        self.batches.append(stats)
        self.ids.append(ids)

    def step(self, lr: float, norms: Sequence[Tensor], logged: LoggedValues | None = None) -> None:
        self.norms += map(to_scalar, norms)
        self.norm_counts.append(len(norms))
        self.rates.append(lr)
        self.logged.append(logged or {})

    def columns(self) -> tuple[Mapping[str, Any], Mapping[str, Tensor]]:
        """Return this rank's part of each step as JSON has it, and what the next buffer carries."""
        sums, digests = self._windows()
        steps = len(self.rates)
        carried = {"window": sums[steps:].sum(0), "ids": digests[steps:].sum(0)}  # of one window, or none
        of_tensors = torch.tensor(to_floats(self.norms), dtype=torch.float64)
        of_step = torch.arange(steps).repeat_interleave(torch.tensor(self.norm_counts, dtype=torch.int64))
        norm = torch.zeros(steps, dtype=torch.float64).index_add_(0, of_step, of_tensors.square()).sqrt()
        return {
            "loss_sum": sums[:steps, LOSS].tolist(),
            "samples": sums[:steps, SAMPLES].tolist(),
            "grad_norm": norm.tolist(),
            "ids": digests[:steps].tolist(),
            "logged": [{kind: _floats(values) for kind, values in step.items()} for step in self.logged],
            "fingerprints": self.fingerprints,
        }, carried

    def _windows(self) -> tuple[Tensor, Tensor]:
        """Sums (windows, sums) and digests (windows,) of the optimizer steps; the last may be under way."""
        plan, window = self.plan, self.plan.steps.batches_per_step(self.epoch)
        under_way = self.first_batch % window
        windows = (under_way + torch.arange(len(self.batches))) // window
        count = -(-(under_way + len(self.batches)) // window)
        sums = torch.zeros(count, len(plan.objective.sums), dtype=torch.float64)
        digests = torch.zeros(count, dtype=torch.int64)
        if under_way:
            sums[0], digests[0] = self.carried["window"], self.carried["ids"]
        if self.batches:
            sums.index_add_(0, windows, stack_stats(plan.objective, self.batches))
            own = id_digests(self.ids, self.first_batch, plan.batch_size, self.rank, plan.world_size)
            digests.index_add_(0, windows, own)
        return sums, digests


def id_digests(batches: Sequence[Tensor], first_batch: int, batch_size: int, rank: int, world_size: int) -> Tensor:
    """int64, one a batch: the sum of a hash of each (sample id, its position in the epoch's order).

    A sum, so that ranks can add theirs in any order: equal digests mean that every sample was at its position.

    Args:
        batches: this rank's sample ids of each batch.
        first_batch: the number, within the epoch, of the first of them.
    """
    lengths = [len(ids) for ids in batches]
    ends = np.cumsum(lengths)
    ids = torch.cat([*batches]).cpu().numpy().astype(np.uint64)
    numbers = np.repeat(np.arange(len(lengths)), lengths)
    within = np.arange(len(ids)) - np.repeat(ends - lengths, lengths)
    positions = (first_batch + numbers) * batch_size + rank + within * world_size
    hashes = mix_bits(ids * STRIDE + positions.astype(np.uint64))
    running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes, dtype=np.uint64)])
    return torch.from_numpy((running[ends] - running[ends - lengths]).view(np.int64))


def mix_bits(numbers: np.ndarray) -> np.ndarray:
    """Uint64 to uint64, every bit depending on every bit (Steele, Lea and Flood, SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = numbers ^ (numbers >> np.uint64(31))
    return mixed


def step_lines(
    parts: Sequence[Mapping[str, Any]], rates: Sequence[float], epoch: int, last_step: int, sharded: bool = False
) -> Iterator[Line]:
    """The lines of an epoch's steps up to `last_step`, each followed by its fingerprints where it has any.

    `grad_norm_spread` is the largest difference of a rank's norm from rank 0's, 0 unless ranks have diverged. Where
    gradients are all-reduced it is 0 by construction: their fingerprints show whether ranks hold the same.

    Args:
        parts: the columns of each rank.
        rates: one a step.
        sharded: whether each rank holds a shard, so that fingerprints may differ. Written beside them, since another
            strategy may continue the record.
    """
    losses, counts, norms = (
        torch.tensor([part[key] for part in parts], dtype=torch.float64) for key in ("loss_sum", "samples", "grad_norm")
    )
    total_losses, total_counts = losses.sum(0).tolist(), counts.sum(0).tolist()
    alike = (norms == norms[0]) | (norms.isnan() & norms[0].isnan())
    spread = (norms - norms[0]).abs().masked_fill(alike, 0.0).amax(0).tolist()
    for index, rate in enumerate(rates):
        step, logged = last_step - len(rates) + index + 1, [part["logged"][index] for part in parts]
        joined = {kind: _joined([own.get(kind, {}) for own in logged]) for kind in ("logged", "metrics")}
        yield {
            "step": {
                "epoch": epoch,
                "step": step,
                "samples": int(total_counts[index]),
                "ids": f"{sum(part['ids'][index] for part in parts) % 2**64:016x}",
                "lr": rate,
                "loss_sum": total_losses[index],
                "grad_norm": norms[0, index].item(),
                "grad_norm_spread": spread[index],
                **{kind: values for kind, values in joined.items() if values},
            }
        }
        prints = [part["fingerprints"].get(str(index)) for part in parts]
        if None not in prints:
            by_kind = {kind: [own[kind] for own in prints] for kind in FINGERPRINTED}
            yield {"fingerprint": {"epoch": epoch, "step": step, **({"sharded": True} if sharded else {}), **by_kind}}


def _floats(values: Mapping[str, tuple[Scalar, float, str]]) -> dict[str, tuple[float, float, str]]:
    return {name: (float(total), weight, how) for name, (total, weight, how) in values.items()}


def _joined(ranks: Iterable[Mapping[str, tuple[float, float, str]]]) -> dict[str, float]:
    """Of one step's names: from each rank's total and weight, of those that have some."""
    found: dict[str, list[tuple[float, float, str]]] = {}
    for values in ranks:
        for name, own in values.items():
            if own[1]:
                found.setdefault(name, []).append(own)
    return {name: _over_ranks(own) for name, own in sorted(found.items())}


def _over_ranks(own: Sequence[tuple[float, float, str]]) -> float:
    totals, how = [total for total, _, _ in own], own[0][2]
    if how in ("min", "max"):
        return min(totals) if how == "min" else max(totals)
    return sum(totals) / sum(weight for _, weight, _ in own) if how == "mean" else sum(totals)
