"""An independent judge: plain PyTorch that follows the contract, written without the code it judges.

It shares with Lockstep the data's tensors and the nets' layers, and nothing else: order, batches, weighting, steps,
accumulation, clipping, schedules and which weights decay are done here from the words of the contract.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
    schedule: Callable[[int], float] = lambda _: 1.0
    wrong: str = ""
    steps: int = 0

    def train(self) -> list[Tensor]:
        """Train and return the parameters and buffers, in order."""
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.net.train()
        window = 1 if self.wrong == "window" else self.accumulate
        for epoch in range(self.epochs):
            generator = torch.Generator().manual_seed(self.seed + epoch + (self.wrong == "order"))
            batches = list(torch.randperm(len(self.inputs), generator=generator).split(self.batch_size))  # type: ignore[no-untyped-call]
            if self.drop_last and len(batches[-1]) < self.batch_size:
                batches.pop()
            for first in range(0, len(batches), window):
                self.step(batches[first : first + window])
        return [tensor.detach() for tensor in self.net.state_dict().values()]

    def step(self, window: list[Tensor]) -> None:
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * self.schedule(self.steps + (self.wrong == "schedule"))
        self.optimizer.zero_grad()
        samples = sum(map(len, window))
        for batch in window:
            outputs = self.outputs(self.inputs[batch])
            divisor = self.batch_size * len(window) if self.wrong == "ragged" else samples
            (self.loss_sum(outputs, self.targets[batch]) / divisor).backward()  # type: ignore[no-untyped-call]
            if self.clip is not None and self.wrong == "clip":  # before the sum is whole
                nn.utils.clip_grad_norm_(self.net.parameters(), self.clip)
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.net.parameters(), self.clip)
        self.optimizer.step()
        self.steps += 1

    def outputs(self, inputs: Tensor) -> Tensor:
        chunks = inputs.chunk(2 if self.wrong == "batchnorm" else 1)  # each chunk has statistics of its own
        return torch.cat([self.net(chunk) for chunk in chunks])

    @staticmethod
    def loss_sum(outputs: Tensor, targets: Tensor) -> Tensor:
        judge: Callable[..., Tensor] = F.mse_loss if targets.is_floating_point() else F.cross_entropy
        return judge(outputs, targets, reduction="sum")


def spared_groups(net: nn.Module, decay: float, wrong: str) -> list[dict[str, Any]]:
    """Weights decay; biases, and all of BatchNorm, do not."""
    spared = [
        parameter
        for module in net.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if name == "bias" or isinstance(module, nn.BatchNorm2d)
    ]
    decayed = [parameter for parameter in net.parameters() if not any(parameter is one for one in spared)]
    spared_decay = decay if wrong == "decay" else 0.0
    return [{"params": decayed, "weight_decay": decay}, {"params": spared, "weight_decay": spared_decay}]


def warmup_linear(warmup: int, total: int) -> Callable[[int], float]:
    """1/w, 2/w, … 1 in the first w steps, then in a line to 0, which the step after the last would have."""
    return lambda step: (step + 1) / warmup if step < warmup else (total - step) / (total - warmup)


def one_cycle(warmup_fraction: float, total: int) -> Callable[[int], float]:
    """Half a cosine from 1/25 to 1, which `warmup_fraction` of the steps take, and half of one to 1/250,000."""
    peak = warmup_fraction * total - 1

    def factor(step: int) -> float:
        if step <= peak:
            return 0.04 + 0.96 * (1 - math.cos(math.pi * step / peak)) / 2
        return 4e-6 + (1 - 4e-6) * (1 + math.cos(math.pi * (step - peak) / (total - 1 - peak))) / 2

    return factor


def largest_difference(actual: list[Tensor], expected: list[Tensor]) -> float:
    """Over all parameters; a differing number of them or of their shapes is infinite."""
    if [tensor.shape for tensor in actual] != [tensor.shape for tensor in expected]:
        return float("inf")
    return max((a - b).abs().max().item() for a, b in zip(actual, expected, strict=True))
