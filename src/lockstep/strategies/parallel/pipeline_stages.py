"""A net whose stages are on several devices, with activations sent between.

With micro-batches the stages overlap: while stage 1 computes micro-batch 0, stage 0 computes micro-batch 1 (Huang et
al., GPipe). CUDA queues the work of each device, so it suffices to start the work in the right order.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn


class PipelineStages:
    """Called like the net; stage i is on device i mod N. Inputs and outputs are on the first device."""

    def __init__(self, stages: Sequence[nn.Module], devices: Sequence[torch.device], micro_batches: int = 1) -> None:
        self.stages, self.micro_batches = stages, micro_batches
        self.devices = [devices[index % len(devices)] for index in range(len(stages))]
        for stage, device in zip(stages, self.devices, strict=True):
            stage.to(device)

    def __call__(self, inputs: Tensor) -> Tensor:
        activations = list(inputs.chunk(self.micro_batches))
        for micro_batch, stage in schedule(len(activations), len(self.stages)):
            activation = self.move(activations[micro_batch], self.devices[stage])
            activations[micro_batch] = self.stages[stage](activation)
        outputs = [self.move(output, self.devices[0]) for output in activations]
        return torch.cat(outputs) if len(outputs) > 1 else outputs[0]

    def move(self, activation: Tensor, device: torch.device) -> Tensor:
        return activation.to(device, non_blocking=True)


def schedule(micro_batches: int, stages: int) -> Iterator[tuple[int, int]]:
    """Yield pairs (micro-batch, stage): at tick t, stage s computes micro-batch t - s; late stages come first."""
    for tick in range(micro_batches + stages - 1):
        for stage in reversed(range(stages)):
            if 0 <= tick - stage < micro_batches:
                yield tick - stage, stage
