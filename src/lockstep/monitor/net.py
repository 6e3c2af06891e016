"""What is shown of a net once, before it is trained: its layers in the terminal, its graph in TensorBoard."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from typing import Any, TypeVar

import torch
from torch import nn

from lockstep.loggers import Loggers
from lockstep.loggers.tensorboard import TensorBoard
from lockstep.plan import Plan
from lockstep.progress import notice, print_beside_bar
from lockstep.random_state import random_state, restore_random_state
from lockstep.schemas.logger import tensorboard_of
from lockstep.text_table import terminal_width

T = TypeVar("T")
ONE_SAMPLE = "one sample"


@dataclass(frozen=True)
class Example:
    """What a net is called with; nothing where it cannot be.

    of: in words, what the shapes are of.
    """

    inputs: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    of: str = ONE_SAMPLE

    @property
    def none(self) -> bool:
        return not self.inputs and not self.named


def shows_net(plan: Plan) -> bool:
    """Whether anything is to be shown: on all ranks alike."""
    board = tensorboard_of(plan)
    return plan.model_summary or (board is not None and board.graph)


def show_net(plan: Plan, loggers: Loggers, net: nn.Module, example: Example, device: torch.device) -> None:
    """To be called by every rank with a batch of its own, since a net may wait for other ranks. Rank 0 shows it.

    Weights, buffers and generators are afterwards what they were.
    """
    with _undisturbed(net, device):
        if plan.model_summary:
            _show_layers(plan, loggers.rank, net, example)
        options = tensorboard_of(plan)
        if options is not None and options.graph and loggers.board is not None:
            _show_graph(loggers.board, net, example)


@contextmanager
def _undisturbed(net: nn.Module, device: torch.device) -> Iterator[None]:
    """As in an evaluation, and nothing that is drawn or counted stays."""
    training = {module: module.training for module in net.modules()}
    buffers = [(own, own.clone()) for own in net.buffers()]
    state = random_state([device])
    net.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        restore_random_state(state, [device])
        for module, was in training.items():
            module.training = was
        for own, before in buffers:
            own.copy_(before)


def _show_layers(plan: Plan, rank: int, net: nn.Module, example: Example) -> None:
    from lockstep.monitor.model_summary import layers_of, summary_text  # with torch's compiler, which takes seconds

    def forward() -> object:
        return net(*example.inputs, **example.named)

    layers, failed = (None, "") if example.none else _tried(lambda: layers_of(net, forward))
    what = f"forward of {example.of}; a multiply-add is 2 FLOPs"
    if layers is None:
        layers = layers_of(net, None)
        what = f"parameters; its forward takes no such batch ({failed})" if failed else "parameters; it has no forward"
    if rank == 0:
        trained = sum(own.numel() for own in net.parameters() if own.requires_grad)
        title = f"{plan.model.name}: {what}"
        print_beside_bar(summary_text(title, layers, trained, terminal_width()))


def _show_graph(board: TensorBoard, net: nn.Module, example: Example) -> None:
    reason = "it has no forward" if example.none else ""
    if not reason:
        with redirect_stdout(StringIO()):  # the tracer prints its error too
            _, reason = _tried(lambda: board.log_graph(net, example.inputs))
    if reason:
        notice(f"logger.tensorboard.graph: the net cannot be traced ({reason}); it is left out")


def _tried(function: Callable[[], T]) -> tuple[T | None, str]:
    """What it returns, or the kind of its error: a user's net may do anything."""
    try:
        return function(), ""
    except Exception as error:
        return None, type(error).__name__
