"""What one rank keeps of the optimizer steps that the record has no line of yet: single numbers, a GPU's on the GPU."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from lockstep.objectives.objective import LOSS, SAMPLES
from lockstep.plan import Plan
from lockstep.record import sample_ids
from lockstep.record.lines import COLUMNS
from lockstep.sums.running import BatchStats, Scalar, stack_stats, to_floats, to_scalar

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

    def columns(self) -> tuple[Tensor, Mapping[str, Tensor]]:
        """(steps, COLUMNS) float64, the digest's 64 bits in a float's place; and what the next buffer carries."""
        sums, digests = self._windows()
        steps = len(self.rates)
        carried = {"window": sums[steps:].sum(0), "ids": digests[steps:].sum(0)}  # of one window, or none
        if steps == 0:
            return torch.zeros(0, COLUMNS, dtype=torch.float64), carried
        sums, digests = sums[:steps], digests[:steps]
        of_tensors = torch.tensor(to_floats(self.norms), dtype=torch.float64)
        of_step = torch.arange(steps).repeat_interleave(torch.tensor(self.norm_counts))
        norm = torch.zeros(steps, dtype=torch.float64).index_add_(0, of_step, of_tensors.square()).sqrt()
        return torch.stack([sums[:, LOSS], sums[:, SAMPLES], norm, digests.view(torch.float64)], dim=1), carried

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
            own = sample_ids.digests(self.ids, self.first_batch, plan.batch_size, self.rank, plan.world_size)
            digests.index_add_(0, windows, own)
        return sums, digests
