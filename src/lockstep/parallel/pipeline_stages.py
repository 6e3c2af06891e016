"""A net whose stages lie on several devices: each stage computes where it lies, activations cross between them.

With micro-batches the stages overlap: while stage 1 computes micro-batch 0, stage 0 computes micro-batch 1 (Huang et
al., GPipe; PyTorch tutorial "Single-Machine Model Parallel Best Practices"). CUDA queues the work of each device, so
starting it in the right order is all that overlapping takes.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn


@runtime_checkable
class Staged(Protocol):
    """A net that can be cut: its stages, to be called one after the other."""

    @property
    def stages(self) -> tuple[nn.Module, ...]: ...


class PipelineStages:
    """Called like the net; stage i lies on device i mod N. Inputs and outputs are on the first device."""

    def __init__(self, stages: Sequence[nn.Module], devices: Sequence[torch.device], micro_batches: int = 1) -> None:
        self.stages = stages
        self.devices = [devices[index % len(devices)] for index in range(len(stages))]
        self.micro_batches = micro_batches

    def to_devices(self) -> None:
        """Move each stage to its device."""
        for stage, device in zip(self.stages, self.devices, strict=True):
            stage.to(device)

    def __call__(self, inputs: Tensor) -> Tensor:
        parts = list(inputs.chunk(self.micro_batches))
        for micro_batch, stage in schedule(len(parts), len(self.stages)):
            activation = self.move(parts[micro_batch], self.devices[stage])
            parts[micro_batch] = self.stages[stage](activation)
        outputs = [self.move(output, self.devices[0]) for output in parts]
        return torch.cat(outputs) if len(outputs) > 1 else outputs[0]

    def move(self, activation: Tensor, device: torch.device) -> Tensor:
        return activation.to(device, non_blocking=True)


def schedule(micro_batches: int, stages: int) -> Iterator[tuple[int, int]]:
    """Pairs (micro-batch, stage), in an order in which neighbours can overlap: at tick t, stage s has number t - s.

    Late stages first, so that every device gets its next work before an early stage gives it more.
    """
    for tick in range(micro_batches + stages - 1):
        for stage in reversed(range(stages)):
            if 0 <= tick - stage < micro_batches:
                yield tick - stage, stage
