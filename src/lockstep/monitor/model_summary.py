"""A net's layers as a table: what each returns, how many parameters it has, what it computes."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lockstep.structures import tensors_in
from lockstep.text_table import columns_text, figures

HEADINGS = ("layer", "kind", "output", "parameters", "MFLOPs")


@dataclass
class Layer:
    """A module without its children; `output` is a shape, empty if it did not run."""

    name: str
    kind: str
    output: str = ""
    parameters: int = 0
    flops: int = 0


def layers_of(net: nn.Module, forward: Callable[[], object] | None) -> list[Layer]:
    """Return the layers that have parameters or ran, in their order in the net. A shared weight counts once.

    Args:
        forward: calls the net; None leaves shapes and FLOPs out.
    """
    layers = {module: Layer(name or "(itself)", type(module).__name__) for name, module in net.named_modules()}
    seen: set[nn.Parameter] = set()
    for module, layer in layers.items():
        for parameter in module.parameters(recurse=False):
            layer.parameters += 0 if parameter in seen else parameter.numel()
            seen.add(parameter)
    if forward is not None:
        _measure(net, layers, forward)
    return [
        layer
        for module, layer in layers.items()
        if layer.parameters or layer.flops or (layer.output and not [*module.children()])
    ]


def _measure(net: nn.Module, layers: dict[nn.Module, Layer], forward: Callable[[], object]) -> None:
    """Fill in the shape that each module returns, and its FLOPs without those of its children."""

    def note_output(module: nn.Module, _inputs: Any, outputs: Any) -> None:
        layers[module].output = "×".join(map(str, next((tensor.shape for tensor in tensors_in(outputs)), ())))

    mha, counter = torch.backends.mha, FlopCounterMode(display=False)
    with ExitStack() as stack:  # torch counts no products within fused recurrent layers and attention
        for module in layers:
            stack.callback(module.register_forward_hook(note_output).remove)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # of flags that this build of torch lacks
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        stack.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
        mha.set_fastpath_enabled(False)
        stack.enter_context(counter)
        forward()
    totals = {name.partition(".")[2]: sum(counts.values()) for name, counts in counter.get_flop_counts().items()}
    totals[""] = counter.get_total_flops()
    for name, module in net.named_modules():
        children = [f"{name}.{child}".removeprefix(".") for child, _ in module.named_children()]
        layers[module].flops = totals.get(name, 0) - sum(totals.get(child, 0) for child in children)


def summary_text(title: str, layers: Sequence[Layer], trained: int) -> str:
    """Return the table, with a line of totals and one of what is trained."""
    total = Layer("total", "", "", sum(layer.parameters for layer in layers), sum(layer.flops for layer in layers))
    cells = [
        (
            *(row.name, row.kind, row.output or ("–" if row.kind else "")),
            *(f"{row.parameters:,}" if row.parameters else "–", figures(row.flops / 1e6 or None)),
        )
        for row in (*layers, total)
    ]
    last_line = f"{trained:,} of {total.parameters:,} parameters are trained"
    return "\n".join(["", title, columns_text(HEADINGS, cells, left=3), last_line, ""])
