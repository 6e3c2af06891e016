"""trainer.max_time: rank 0's clock ends training, after the same batch on every rank.

Asking rank 0 is a message, so its answer includes how many batches may pass until it is asked again.
"""

import time

import torch

from lockstep.parallel.messages import all_reduce_sums
from lockstep.progress import notice

PAUSE = 0.25  # seconds between two questions, about: a run may end that much later than at its time, plus a batch


class TimeLimit:
    """The time limit of a run; the clock of one that is resumed begins anew. `passed`: it is over."""

    def __init__(self, seconds: float | None, rank: int, device: torch.device) -> None:
        self.seconds, self.rank, self.device = seconds, rank, device
        self.passed = False
        self.begin()

    def begin(self) -> None:
        self.began, self.batches, self.next_question = time.perf_counter(), 0, 1

    def ends(self, steps: int) -> bool:
        """Whether training ends after this batch; every rank asks after each, with its number of optimizer steps."""
        if self.seconds is None or self.passed:
            return self.passed
        self.batches += 1
        if self.batches >= self.next_question:
            elapsed = time.perf_counter() - self.began
            remaining = self.seconds - elapsed
            ahead = max(1, int(max(0.0, min(PAUSE, remaining)) * self.batches / elapsed))
            answer = torch.tensor([remaining <= 0, ahead], dtype=torch.float64) * (self.rank == 0)
            over, batches = all_reduce_sums(answer, self.device).tolist()
            self.passed, self.next_question = bool(over), self.batches + int(batches)
            if self.passed and self.rank == 0:
                notice(f"trainer.max_time: {self.seconds:g} s are over after step {steps}; resume=true trains on")
        return self.passed
