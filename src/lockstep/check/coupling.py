"""How the loss of a batch depends on its samples, by calls of training_step with parts and copies of the batch."""

import inspect
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from lockstep.check.probe import Trace, batch_size_of
from lockstep.plan.targets.kinds import replace_method

CLOSE = 1e-6


def close(one: float, other: float) -> bool:
    return abs(one - other) <= CLOSE * max(abs(one), abs(other), 1e-6)


class Coupling(Callback):
    """Notes in `trace["facts"]` the `coupling` of the first batch, and the `layer` that couples its samples.

    mean: the loss is the mean of the samples' losses. summed: their sum. weighted: their mean, with weights.
    term: their mean, and a term that is divided by the size of the batch. across: it compares samples with each other.
    layer: a layer's output for a sample depends on the other samples.
    """

    def __init__(self) -> None:
        self.trace: Trace = {"steps": [], "validations": [], "facts": {}, "end": {}}
        self.calls: list[str] = []

    def on_train_batch_start(self, trainer: Trainer, module: LightningModule, batch: Any, batch_idx: int) -> None:
        trainer.should_stop = True
        facts, size = self.trace["facts"], batch_size_of(batch)
        if "coupling" in facts or not module.automatic_optimization or size < 4:
            return
        replace_method(module, "log", lambda *_, **__: None)
        state = {name: tensor.clone() for name, tensor in module.state_dict().items()}

        def loss(*rows: int) -> float:
            module.load_state_dict(state)
            torch.manual_seed(0)
            step: Any = module.training_step
            returned = step(*(taken(batch, size, rows), 0)[: len(inspect.signature(step).parameters)])
            return float(returned["loss"] if isinstance(returned, dict) else returned)

        half, full = size // 2, [*range(size)]
        layer = coupling_layer(module, lambda: loss(*full), lambda: loss(*full[:half]), half)
        if layer is not None:
            facts |= {"coupling": "layer", "layer": layer}
        else:
            facts["coupling"] = kind_of(loss, full, half)
        module.load_state_dict(state)


def taken(batch: Any, size: int, rows: tuple[int, ...]) -> Any:
    """Return a batch of these rows."""
    index = torch.tensor(rows)

    def of(leaf: Any) -> Any:
        return leaf[index] if isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == size else leaf

    return pytree.tree_map(of, batch)


def kind_of(loss: Any, full: list[int], half: int) -> str:
    """Return the kind of a loss from its values for halves and copies of a batch."""
    whole, one, other, double = loss(*full), loss(*full[:half]), loss(*full[half:]), loss(*full, *full)
    if close(whole, (one * half + other * (len(full) - half)) / len(full)) and close(double, whole):
        return "mean"
    if close(double, 2 * whole) and close(whole, one + other):
        return "summed"
    if not close(double, whole):
        return "term" if close(whole - double, 2 * (double - loss(*full * 4))) else "across"
    if one == other:
        return "across"
    weight = (whole - other) / (one - other)  # the share of the first half's weights
    expected = (2 * weight * one + (1 - weight) * other) / (1 + weight)
    return "weighted" if 0 <= weight <= 1 and close(loss(*full[:half], *full), expected) else "across"


def coupling_layer(module: nn.Module, whole: Any, part: Any, rows: int) -> str | None:
    """Return the first submodule, in the order of calls, whose output for the first rows depends on the others."""
    outputs: list[tuple[str, Tensor]] = []
    hooks = [
        layer.register_forward_hook(lambda _, __, output, name=name: outputs.append((name, output)))
        for name, layer in module.named_modules()
        if name and not [*layer.children()]
    ]
    try:
        whole()
        first = [*outputs]
        outputs.clear()
        part()
    finally:
        for hook in hooks:
            hook.remove()
    for (name, all_rows), (_, some) in zip(first, outputs, strict=False):
        is_tensor = isinstance(all_rows, Tensor) and isinstance(some, Tensor) and some.dim() and len(some) == rows
        if is_tensor and not torch.allclose(all_rows[:rows], some, rtol=CLOSE, atol=CLOSE):
            return name
    return None
