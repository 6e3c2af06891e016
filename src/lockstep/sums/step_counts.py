"""Where some targets are ignored, an optimizer step is by the mean over those that count, of all ranks and batches.

How many these are nobody knows before the step's last batch. So gradients are those of a mean over samples until then.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from lockstep.objectives.objective import SAMPLES, Objective
from lockstep.parallel.messages import all_reduce_sums
from lockstep.sums.running import BatchStats, RunningSums


class StepCounts:
    """One for each rank: what it has summed of the step's batches."""

    def __init__(self, objective: Objective, device: torch.device) -> None:
        self.objective, self.device = objective, device
        self.sums = RunningSums(objective)

    def add(self, batch: BatchStats) -> None:
        if self.objective.ignored is not None:
            self.sums.add(batch)

    @torch.no_grad()
    def weigh(self, parameters: Iterable[Tensor]) -> None:
        """Their gradients, once they are averaged over ranks. To be called by every rank."""
        if self.objective.ignored is None:
            return
        sums = all_reduce_sums(self.sums.sums, self.device).tolist()
        self.sums = RunningSums(self.objective)
        if counted := self.objective.divisor(sums):  # else there is no gradient
            for own in parameters:
                if own.grad is not None:
                    own.grad.mul_(sums[SAMPLES] / counted)
