"""trainer.max_time: rank 0's clock ends training, behind the same batch on every rank.

Asking rank 0 is a message, so it says with each answer how many batches may pass until it is asked again.
"""

import time

import torch

from lockstep.parallel.messages import all_reduce_sums
from lockstep.progress import notice

PAUSE = 0.25
"""Seconds from one question to the next, about: so much later than at its time a run may end, and a batch."""


class TimeLimit:
    """Of one run: of one that is resumed the clock begins anew. `passed`: it is over."""

    def __init__(self, seconds: float | None, rank: int, device: torch.device) -> None:
        self.seconds, self.rank, self.device = seconds, rank, device
        self.passed = False
        self.begin()

    def begin(self) -> None:
        """Training begins."""
        self.since, self.batches, self.asked_after = time.perf_counter(), 0, 1

    def ends(self, steps: int) -> bool:
        """To be asked after each batch, by every rank; so many optimizer steps are done."""
        if self.seconds is None or self.passed:
            return self.passed
        self.batches += 1
        if self.batches >= self.asked_after:
            gone = time.perf_counter() - self.since
            left = self.seconds - gone
            ahead = max(1, int(max(0.0, min(PAUSE, left)) * self.batches / gone))
            answer = torch.tensor([left <= 0, ahead], dtype=torch.float64)
            over, batches = all_reduce_sums(
                answer if self.rank == 0 else torch.zeros_like(answer), self.device
            ).tolist()
            self.passed, self.asked_after = bool(over), self.batches + int(batches)
            if self.passed and self.rank == 0:
                notice(f"trainer.max_time: {self.seconds:g} s are over after step {steps}; resume=true trains on")
        return self.passed
