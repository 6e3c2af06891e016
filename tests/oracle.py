"""An independent judge: plain PyTorch that follows the contract, written without the code it judges.

It shares with Lockstep the data's tensors and the nets' layers, and nothing else: order, batches, weighting, steps and
accumulation are done here from the words of the contract.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class Oracle:
    """One process, float64; `wrong` names a deviation that a comparison must catch."""

    net: nn.Module
    inputs: Tensor
    targets: Tensor
    seed: int
    batch_size: int
    epochs: int
    optimizer: torch.optim.Optimizer
    accumulate: int = 1
    clip: float | None = None
    drop_last: bool = False
    wrong: str = ""

    def train(self) -> list[Tensor]:
        """Train and return the parameters, in order."""
        for epoch in range(self.epochs):
            generator = torch.Generator().manual_seed(self.seed + epoch + (self.wrong == "order"))
            batches = list(torch.randperm(len(self.inputs), generator=generator).split(self.batch_size))  # type: ignore[no-untyped-call]
            if self.drop_last and len(batches[-1]) < self.batch_size:
                batches.pop()
            for first in range(0, len(batches), self.accumulate):
                self.step(batches[first : first + self.accumulate])
        return [parameter.detach() for parameter in self.net.parameters()]

    def step(self, window: list[Tensor]) -> None:
        self.optimizer.zero_grad()
        samples = sum(map(len, window))
        for batch in window:
            outputs = self.net(self.inputs[batch])
            divisor = self.batch_size * len(window) if self.wrong == "ragged" else samples
            (self.loss_sum(outputs, self.targets[batch]) / divisor).backward()  # type: ignore[no-untyped-call]
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.net.parameters(), self.clip)
        self.optimizer.step()

    @staticmethod
    def loss_sum(outputs: Tensor, targets: Tensor) -> Tensor:
        judge: Callable[..., Tensor] = F.mse_loss if targets.is_floating_point() else F.cross_entropy
        return judge(outputs, targets, reduction="sum")


def largest_difference(left: list[Tensor], right: list[Tensor]) -> float:
    """Over all parameters; a differing number of them or of their shapes is infinite."""
    if [tensor.shape for tensor in left] != [tensor.shape for tensor in right]:
        return float("inf")
    return max((a - b).abs().max().item() for a, b in zip(left, right, strict=True))
