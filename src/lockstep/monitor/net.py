"""What is shown of a net before it is trained: its layers in the terminal, its graph in TensorBoard."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import Any

import torch
from torch import nn

from lockstep.loggers import Loggers
from lockstep.plan import Plan
from lockstep.progress import notice, print_beside_bar
from lockstep.random_state import preserve_generators
from lockstep.schemas.target import tensorboard_of

Example = tuple[Any, ...] | Mapping[str, Any]


def prints_layers(plan: Plan) -> bool:
    return plan.model_summary or plan.trainer.enable_model_summary


def shows_net(plan: Plan) -> bool:
    """Whether anything is to be shown: the same on all ranks."""
    board = tensorboard_of(plan)
    return prints_layers(plan) or (board is not None and board.graph)


def show_net(plan: Plan, loggers: Loggers, net: nn.Module, example: Example, device: torch.device) -> None:
    """Show the net on rank 0; weights, buffers and generators are unchanged afterwards.

    Every rank calls it with its own batch, since a net may wait for others. `example`: the arguments of its forward, by
    position or by name; empty if they are unknown.
    """
    with _unchanged(net, device):
        if prints_layers(plan):
            _show_layers(plan, loggers.rank, net, example)
        options = tensorboard_of(plan)
        if options is not None and options.graph and loggers.board is not None:
            _show_graph(loggers.board.writer, net, example)


@contextmanager
def _unchanged(net: nn.Module, device: torch.device) -> Iterator[None]:
    """Evaluate without gradients; restore modes, buffers and generators."""
    training = {module: module.training for module in net.modules()}
    buffers = [(buffer, buffer.clone()) for buffer in net.buffers()]
    net.eval()
    try:
        with torch.no_grad(), preserve_generators([device]):
            yield
    finally:
        for module, mode in training.items():
            module.training = mode
        for buffer, before in buffers:
            buffer.copy_(before)


def _show_layers(plan: Plan, rank: int, net: nn.Module, example: Example) -> None:
    """Print Lightning's table of all layers, without shapes and FLOPs if the net cannot be called."""
    from lockstep.private_api.lightning import layers_table  # with Lightning

    def forward() -> Any:
        return net(**example) if isinstance(example, Mapping) else net(*example)

    content = "forward of an example" if example else "parameters"
    try:
        table = layers_table(net, forward if example else None)
    except Exception as error:  # of the user's net
        content = f"parameters; its forward does not take the example ({type(error).__name__})"
        table = layers_table(net, None)
    if rank == 0:
        print_beside_bar(f"\n{plan.model.name}: {content}\n{table}")


def _show_graph(writer: Any, net: nn.Module, example: Example) -> None:
    with redirect_stdout(StringIO()), warnings.catch_warnings():  # the tracer prints its errors, and is deprecated
        warnings.simplefilter("ignore")
        try:
            writer.add_graph(net, example)
        except Exception as error:  # of the user's net
            notice(f"logger.tensorboard.graph: the net cannot be traced ({type(error).__name__}); it is left out")
