"""With ignored targets, the gradient of an optimizer step is a mean over the targets that count, of all ranks.

Their number is unknown before the last batch of the step, so until then gradients are those of a mean over samples.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from lockstep.objectives.objective import SAMPLES, Objective
from lockstep.parallel.messages import all_reduce_sums
from lockstep.sums.running import BatchStats, RunningSums


class StepCounts:
    """This rank's sums of the batches of the current optimizer step."""

    def __init__(self, objective: Objective, device: torch.device) -> None:
        self.objective, self.device = objective, device
        self.sums = RunningSums(objective)

    def add(self, batch: BatchStats) -> None:
        if self.objective.ignored is not None:
            self.sums.add(batch)

    @torch.no_grad()
    def weigh(self, parameters: Iterable[Tensor]) -> None:
        """Scale the gradients, which are averaged over ranks already. To be called by every rank."""
        if self.objective.ignored is None:
            return
        sums = all_reduce_sums(self.sums.sums, self.device).tolist()
        self.sums = RunningSums(self.objective)
        counted = self.objective.divisor(sums)
        for parameter in parameters:
            if parameter.grad is not None and counted:
                parameter.grad.mul_(sums[SAMPLES] / counted)
