"""How the loss of a batch depends on its samples, by calls of training_step with parts and copies of the batch."""

import inspect
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn

from lockstep.base.structures import map_tensors
from lockstep.check.noise import FrozenNoise
from lockstep.check.probe import Probe
from lockstep.check.sketches import batch_size_of
from lockstep.plan.targets.kinds import replace_method

CLOSE = 1e-6


def close(one: float, other: float) -> bool:
    return abs(one - other) <= CLOSE * max(abs(one), abs(other), 1e-6)


class Coupling(Probe):
    """Notes in `trace["facts"]` the `coupling` of the first batch, and the `layer` that couples its samples.

    mean: the loss is the mean of the samples' losses. summed: their sum. weighted: their mean, with weights.
    term: their mean, and a term that is divided by the size of the batch. across: it compares samples with each other.
    layer: a layer's output for a sample depends on the other samples. inputs: what the first layer takes does so.
    """

    def on_train_batch_start(self, trainer: Trainer, module: LightningModule, batch: Any, batch_idx: int) -> None:
        trainer.should_stop = True
        facts, size = self.trace["facts"], batch_size_of(batch)
        if "coupling" in facts or size < 4:
            return
        replace_method(module, "log", lambda *_, **__: None)
        losses: list[float] = []
        if not module.automatic_optimization:  # without gradients, no optimizer steps
            replace_method(module, "manual_backward", lambda _, loss, *__, **___: losses.append(float(loss.detach())))
        state = {name: tensor.clone() for name, tensor in module.state_dict().items()}

        def loss(*rows: int, place: int = 0) -> float:
            module.load_state_dict(state)
            losses.clear()
            step: Any = module.training_step
            with FrozenNoise():
                returned = step(*(select_rows(batch, size, rows), 0)[: len(inspect.signature(step).parameters)])
            if module.automatic_optimization:
                losses[:] = [float(returned["loss"] if isinstance(returned, dict) else returned)]
            return losses[place]

        half, full = size // 2, [*range(size)]
        layer = coupling_layer(module, lambda: loss(*full), lambda: loss(*full[:half]), half)
        if layer is not None:
            facts |= {"coupling": "layer", "layer": layer} if layer else {"coupling": "inputs"}
        else:
            splits = [(full[:half], full[half:]), (full[::2], full[1::2]), (full[: half // 2], full[half // 2 :])]
            for place in range(len(losses)):  # halves may have equal weights by chance
                kinds = [kind_of(partial(loss, place=place), full, *split) for split in splits]
                facts["coupling"] = next((kind for kind in kinds if kind != "mean"), "mean")
                if facts["coupling"] != "mean":
                    break
        module.load_state_dict(state)


def select_rows(batch: Any, size: int, rows: tuple[int, ...]) -> Any:
    """Return a batch of these rows."""
    index = torch.tensor(rows)

    def of(leaf: Tensor) -> Tensor:
        return leaf[index] if leaf.dim() and len(leaf) == size else leaf

    return map_tensors(of, batch)


def kind_of(loss: Any, full: list[int], left: list[int], right: list[int]) -> str:
    """Return the kind of a loss from its values for two parts and for copies of a batch."""
    full_batch, one, other, double = loss(*full), loss(*left), loss(*right), loss(*full, *full)
    if close(full_batch, (one * len(left) + other * len(right)) / len(full)) and close(double, full_batch):
        return "mean"
    if close(double, 2 * full_batch) and close(full_batch, one + other):
        return "summed"
    if not close(double, full_batch):
        return "term" if close(full_batch - double, 2 * (double - loss(*full * 4))) else "across"
    if one == other:
        return "across"
    weight = (full_batch - other) / (one - other)  # the share of the first half's weights
    expected = (2 * weight * one + (1 - weight) * other) / (1 + weight)
    return "weighted" if 0 <= weight <= 1 and close(loss(*left, *full), expected) else "across"


def coupling_layer(module: nn.Module, full_batch: Any, part: Any, rows: int) -> str | None:
    """Return the first submodule whose output for the first rows depends on the others; "" if its inputs do already."""
    outputs: list[tuple[str, Any, Any]] = []
    hooks = [
        layer.register_forward_hook(lambda _, inputs, output, name=name: outputs.append((name, inputs[:1], output)))
        for name, layer in module.named_modules()
        if name and not [*layer.children()]
    ]
    try:
        full_batch()
        first = [*outputs]
        outputs.clear()
        part()
    finally:
        for hook in hooks:
            hook.remove()
    for (name, inputs, output), (_, few_inputs, few) in zip(first, outputs, strict=False):
        if differs([*inputs], [*few_inputs], rows):
            return ""
        if differs([output], [few], rows):
            return name
    return None


def differs(all_rows: list[Any], some: list[Any], rows: int) -> bool:
    """Whether the first rows are others in a batch of these rows alone."""
    for one, other in zip(all_rows, some, strict=True):
        has_rows = isinstance(one, Tensor) and isinstance(other, Tensor) and other.dim() and len(other) == rows
        if has_rows and not torch.allclose(one[:rows].double(), other.double(), rtol=CLOSE, atol=CLOSE):
            return True
    return False
