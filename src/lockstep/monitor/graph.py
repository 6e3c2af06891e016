"""The net as TensorBoard draws it, traced with the first sample of the validation."""

import copy

import torch
from torch import nn

from lockstep.data.samples import SampleData
from lockstep.data.tensors import TensorData
from lockstep.loggers import Loggers
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.progress import notice
from lockstep.schemas.logger import tensorboard_of


def show_graph(
    plan: Plan, loggers: Loggers, net: nn.Module, data: TensorData | SampleData, device: torch.device
) -> None:
    """Where it is asked for. A copy of the net is traced, so that nothing is drawn or counted twice."""
    board = tensorboard_of(plan)
    if board is None or not board.graph or not loggers.loggers:
        return
    dtype = dtype_of(plan)
    inputs = torch.zeros(1, *data.shape, dtype=dtype, device=device)
    if isinstance(data, TensorData):
        first = torch.zeros(1, dtype=torch.int64, device=data.train.inputs.device)
        inputs = data.as_float(data.train[first], dtype).inputs.to(device)
    try:
        loggers.log_graph(copy.deepcopy(net).to(device).eval(), inputs)
    except Exception as error:  # a user's net may do what cannot be traced
        notice(f"logger.tensorboard.graph: the net cannot be traced ({type(error).__name__}); it is left out")
