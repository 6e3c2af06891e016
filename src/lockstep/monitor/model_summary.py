"""A net's layers as a table: what each returns, how many parameters it has, what it computes."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lockstep.structures import tensors_in
from lockstep.text_table import GAP, columns_text, figures

HEADINGS = ("layer", "kind", "output", "parameters", "MFLOPs")
LEAST_NAME = 8
"""Characters that a layer's name keeps in the narrowest terminal."""


@dataclass
class Layer:
    """A part of a net, without the parts within it. `output` is a shape; none of what did not run."""

    name: str
    kind: str
    output: str = ""
    parameters: int = 0
    flops: int = 0


class _Forward:
    """Around a forward pass: what each module returns, and the FLOPs of its own."""

    def __init__(self, layers: dict[nn.Module, Layer]) -> None:
        self.layers, self.counter = layers, FlopCounterMode(display=False)
        self.running: list[list[int]] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        """By plain operations: of recurrent layers and attention in one piece torch does not count the products."""
        mha = torch.backends.mha
        with ExitStack() as stack:
            for module in self.layers:
                stack.callback(module.register_forward_pre_hook(self._begin).remove)
                stack.callback(module.register_forward_hook(self._end).remove)
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # the flags warn of what this build of torch has not
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            stack.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
            mha.set_fastpath_enabled(False)
            stack.enter_context(self.counter)
            yield

    def _begin(self, module: nn.Module, inputs: Any) -> None:
        self.running.append([self.counter.get_total_flops(), 0])

    def _end(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        before, within = self.running.pop()
        whole = self.counter.get_total_flops() - before
        layer = self.layers[module]
        layer.flops += whole - within
        layer.output = "×".join(map(str, next((own.shape for own in tensors_in(outputs)), ())))
        if self.running:
            self.running[-1][1] += whole


def layers_of(net: nn.Module, forward: Callable[[], object] | None) -> list[Layer]:
    """Those that have parameters or ran, in their order in the net. A weight of several layers counts in the first.

    Args:
        forward: of the net; None leaves shapes and FLOPs out.
    """
    layers = {own: Layer(name or "(itself)", type(own).__name__) for name, own in net.named_modules()}
    seen: set[int] = set()
    for module, layer in layers.items():
        for own in module.parameters(recurse=False):
            layer.parameters += 0 if id(own) in seen else own.numel()
            seen.add(id(own))
    if forward is not None:
        with _Forward(layers).watched():
            forward()
    ran = {module for module, own in layers.items() if own.output and not [*module.children()]}
    return [own for module, own in layers.items() if own.parameters or own.flops or module in ran]


def summary_text(title: str, layers: Sequence[Layer], trained: int, width: int) -> str:
    """The table, with a line of totals and one of what is trained; in a narrow terminal first `kind`, then the
    beginnings of names are left out.
    """
    parameters, flops = sum(own.parameters for own in layers), sum(own.flops for own in layers)
    rows = [(own.name, own.kind, own.output or "–", *_counts(own.parameters, own.flops)) for own in layers]
    rows.append(("total", "", "", *_counts(parameters, flops)))
    end = f"{trained:,} of {parameters:,} parameters are trained"
    return "\n".join(["", *_lines(title, width), _fitted(rows, width), *_lines(end, width), ""])


def _counts(parameters: int, flops: int) -> tuple[str, str]:
    return f"{parameters:,}" if parameters else "–", figures(flops / 1e6 or None)


def _fitted(rows: Sequence[Sequence[str]], width: int) -> str:
    text = columns_text(HEADINGS, rows, left=3)
    if max(map(len, text.splitlines())) <= width:
        return text
    headings, rows = (HEADINGS[0], *HEADINGS[2:]), [(row[0], *row[2:]) for row in rows]
    text = columns_text(headings, rows, left=2)
    over = max(0, max(map(len, text.splitlines())) - width)
    longest = max(len(row[0]) for row in rows)
    room = max(LEAST_NAME, longest - over) if over else longest
    shortened = [(row[0] if len(row[0]) <= room else f"…{row[0][1 - room :]}", *row[1:]) for row in rows]
    return columns_text(headings, shortened, left=2)


def _lines(sentence: str, width: int) -> list[str]:
    return wrap(sentence, max(20, width), subsequent_indent=GAP)
