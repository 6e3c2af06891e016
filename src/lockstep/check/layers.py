"""The first submodule that parts at one step: outputs and gradients of each, sample by sample."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from lockstep.check.noise import FrozenNoise, GeneratorSpy
from lockstep.check.probe import Probe
from lockstep.check.sketches import Trace, batch_size_of, sample_hashes

CLOSE = 1e-9


class Layers(Probe):
    """Notes in `trace`, at one step, `samples`, and by submodule a number for each sample: `forward` and `backward`."""

    def __init__(self, seed: int, noise: FrozenNoise | GeneratorSpy, step: int) -> None:
        super().__init__(seed, noise=noise)
        self.at, self.hooks, self.size = step, list[Any](), 0
        self.trace |= {"samples": [], "forward": {}, "backward": {}}

    def on_train_batch_start(self, trainer: Trainer, module: LightningModule, batch: Any, batch_idx: int) -> None:
        super().on_train_batch_start(trainer, module, batch, batch_idx)
        if len(self.trace["steps"]) != self.at or self.hooks:
            return
        self.trace["samples"], self.size = sample_hashes(batch), batch_size_of(batch)
        for name, layer in module.named_modules():
            if name and not [*layer.children()]:
                self.hooks.append(layer.register_forward_hook(self.noting(name)))

    def noting(self, name: str) -> Any:
        def hook(_layer: Any, _inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor) and output.dim() and len(output) == self.size:
                self.trace["forward"].setdefault(name, projected(output))
                if output.requires_grad:
                    tensor: Any = output
                    tensor.register_hook(lambda gradient: self.trace["backward"].update({name: projected(gradient)}))

        return hook

    def on_before_optimizer_step(self, trainer: Trainer, module: LightningModule, optimizer: Any) -> None:
        super().on_before_optimizer_step(trainer, module, optimizer)
        for hook in self.hooks:
            hook.remove()
        trainer.should_stop = trainer.should_stop or bool(self.hooks)


def projected(rows: Tensor) -> list[float]:
    values = rows.detach().double().flatten(1) if rows.dim() > 1 else rows.detach().double()[:, None]
    numbers: list[float] = (values @ torch.arange(values.shape[1], dtype=torch.float64).mul_(0.7).cos_()).tolist()
    return numbers


def first_layer(single: Trace, ranks: Sequence[Trace]) -> str:
    """Return the first submodule whose output or gradient is another on the ranks; else what comes after them."""
    for phase, names, factor in (
        ("forward", [*single["forward"]], 1.0),
        ("backward", [*reversed(single["forward"])], 1 / len(ranks)),
    ):
        for name in names:
            if name in single[phase] and any(parts(single, rank, phase, name, factor) for rank in ranks):
                return f"{name}, {phase}"
    return "after the backward pass: the reduction over ranks"


def parts(single: Trace, rank: Trace, phase: str, name: str, factor: float) -> bool:
    """Whether the values of a rank's samples differ from those in one process."""
    alone = dict(zip(single["samples"], single[phase][name], strict=False))
    scale = max(map(abs, alone.values()), default=0.0)
    return any(abs(one - factor * other) > CLOSE * scale for one, other in pairs(alone, rank, phase, name))


def pairs(alone: dict[str, float], rank: Trace, phase: str, name: str) -> Iterator[tuple[float, float]]:
    for sample, value in zip(rank["samples"], rank[phase].get(name, ()), strict=False):
        if sample in alone:
            yield alone[sample], value
