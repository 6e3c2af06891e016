"""How the loss of a batch depends on its samples, by calls of training_step with parts and copies of the batch."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer

from lockstep.base.private_api.torch import BATCHNORM
from lockstep.base.structures import map_tensors
from lockstep.check.noise import Noise
from lockstep.check.probe import Probe
from lockstep.check.sketches import batch_size_of
from lockstep.plan.targets.kinds import replace_method

CLOSE = 1e-6


class LossProbe(Probe):
    """Notes in `trace["facts"]` the kind of `loss` that the first batch has.

    mean: the loss is the mean of the samples' losses. summed: their sum. weighted: their mean, with weights.
    term: their mean, and a term that is divided by the size of the batch. across: it compares samples with each other,
    or a layer does, or it depends on a state.
    """

    def on_train_batch_start(self, trainer: Trainer, module: LightningModule, batch: Any, batch_idx: int) -> None:
        trainer.should_stop = True
        facts, size, losses = self.trace["facts"], batch_size_of(batch), list[float]()
        if "loss" in facts or size < 4:
            return
        replace_method(module, "log", lambda *_, **__: None)
        for layer in module.modules():
            if isinstance(layer, BATCHNORM):
                layer.eval()  # or it mixes the samples, whatever the loss
        if not module.automatic_optimization:  # without gradients, no optimizer steps
            replace_method(module, "manual_backward", lambda _, loss, *__, **___: losses.append(float(loss.detach())))
        state = {name: tensor.clone() for name, tensor in module.state_dict().items()}

        def losses_of(rows: Sequence[int]) -> list[float]:
            """Return the loss of a batch of these rows, or of manual optimization those of all backward passes."""
            module.load_state_dict(state)
            losses.clear()
            step: Any = module.training_step
            with Noise(freezes=True):
                returned = step(*(select_rows(batch, size, rows), 0)[: len(inspect.signature(step).parameters)])
            if module.automatic_optimization:
                losses[:] = [float(returned["loss"] if isinstance(returned, dict) else returned)]
            return [*losses]

        half, rows = size // 2, [*range(size)]
        parts = [(rows[:half], rows[half:]), (rows[::2], rows[1::2]), (rows[: half // 2], rows[half // 2 :])]
        kinds = (  # of several parts: halves may have equal weights by chance
            kind_of(lambda rows, place=place: losses_of(rows)[place], rows, *part)  # type: ignore[misc]
            for place in range(len(losses_of(rows)))
            for part in parts
        )
        facts["loss"] = next((kind for kind in kinds if kind != "mean"), "mean")
        module.load_state_dict(state)


def select_rows(batch: Any, size: int, rows: Sequence[int]) -> Any:
    """Return a batch of these rows."""
    index = torch.tensor(rows)
    return map_tensors(lambda leaf: leaf[index] if leaf.dim() and len(leaf) == size else leaf, batch)


def kind_of(loss: Callable[[Sequence[int]], float], rows: list[int], left: list[int], right: list[int]) -> str:
    """Return the kind of a loss from its values for two parts and for copies of a batch."""
    batch, one, other, double = loss(rows), loss(left), loss(right), loss(rows * 2)
    if close(batch, (one * len(left) + other * len(right)) / len(rows)) and close(double, batch):
        return "mean"
    if close(double, 2 * batch) and close(batch, one + other):
        return "summed"
    if not close(double, batch):
        return "term" if close(batch - double, 2 * (double - loss(rows * 4))) else "across"
    if one == other:
        return "across"
    weight = (batch - other) / (one - other)  # the share of the left part's weights
    expected = (2 * weight * one + (1 - weight) * other) / (1 + weight)
    return "weighted" if 0 <= weight <= 1 and close(loss([*left, *rows]), expected) else "across"


def close(one: float, other: float) -> bool:
    return abs(one - other) <= CLOSE * max(abs(one), abs(other), 1e-6)
