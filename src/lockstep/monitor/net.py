"""What is shown of a net: its layers in the terminal before training, histograms of its weights in TensorBoard."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from lockstep.loggers import Loggers
from lockstep.parallel.tensor_layout import full_tensor
from lockstep.plan import Plan
from lockstep.progress import print_beside_bar
from lockstep.random_state import preserve_generators
from lockstep.schemas.target import tensorboard_of


def show_layers(plan: Plan, rank: int, net: nn.Module, example: Any, device: torch.device) -> None:
    """Print Lightning's table of all layers on rank 0; weights, modes, buffers and generators are unchanged afterwards.

    Every rank calls it with its own batch, since a net may wait for others. `example`: the argument of its forward, a
    tuple of several or a mapping of them by name; None if it is unknown. Without it, or if the net cannot be called
    with it, there are no shapes and FLOPs.
    """
    from lockstep.private_api.lightning import layers_table  # with Lightning

    def forward() -> Any:
        if isinstance(example, Mapping):
            return net(**example)
        return net(*example) if isinstance(example, tuple) else net(example)

    content = "parameters" if example is None else "forward of an example"
    training = {module: module.training for module in net.modules()}
    buffers = [(buffer, buffer.clone()) for buffer in net.buffers()]
    net.eval()
    with torch.no_grad(), preserve_generators([device]):
        try:
            table = layers_table(net, None if example is None else forward)
        except Exception as error:  # of the user's net
            content = f"parameters; its forward does not take the example ({type(error).__name__})"
            table = layers_table(net, None)
        for buffer, before in buffers:
            buffer.copy_(before)
    for module, mode in training.items():
        module.training = mode
    if rank == 0:
        print_beside_bar(f"\n{plan.model.name}: {content}\n{table}")


def log_histograms(plan: Plan, loggers: Loggers, net: nn.Module, epoch: int, step: int) -> None:
    """Log the weights after the last step of every N-th epoch (from 1), and its gradients. Every rank calls it."""
    options, board = tensorboard_of(plan), loggers.board
    if options is None or options.histograms == 0 or epoch % options.histograms != 0:
        return
    for name, parameter in net.named_parameters() if board is not None or plan.strategy.sharded else ():
        tensors = {f"weights/{name}": parameter.detach(), f"weights/{name}/gradient": parameter.grad}
        for tag, tensor in tensors.items():
            values = None if tensor is None else full_tensor(tensor)  # on every rank: it may be sharded
            if board is not None and values is not None:
                board.writer.add_histogram(tag, values, step)
