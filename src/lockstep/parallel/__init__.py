"""Nets on several devices of one process, BatchNorm and dropout over several: the wrapping that no engine owns."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lockstep.parallel.all_reduce import all_reduce_sums
from lockstep.parallel.autocast import AutocastWrapper
from lockstep.parallel.buffers import broadcast_buffers
from lockstep.parallel.cpu_data_parallel import CpuDataParallel
from lockstep.parallel.global_dropout import GlobalMasks, convert_dropout
from lockstep.parallel.messages import from_first, to_all, to_first
from lockstep.parallel.pipeline_stages import PipelineStages, Staged
from lockstep.parallel.shapes import show_shapes
from lockstep.parallel.sync_batchnorm import convert_batchnorm
from lockstep.parallel.synchronize import synchronize
from lockstep.plan import Plan

__all__ = [
    "GlobalMasks",
    "all_reduce_sums",
    "broadcast_buffers",
    "convert_batchnorm",
    "convert_dropout",
    "devices_of",
    "forward_of",
    "from_first",
    "move_to_devices",
    "show_shapes",
    "synchronize",
    "to_all",
    "to_first",
]

Forward = Callable[[Tensor], Tensor]


def devices_of(plan: Plan) -> list[torch.device]:
    """The devices of this process, its first one first: where batches arrive and losses are computed."""
    if plan.strategy.wrap in ("none", "ddp"):
        return [torch.device("cuda", torch.cuda.current_device()) if plan.accelerator == "gpu" else torch.device("cpu")]
    if plan.accelerator == "gpu":
        return [torch.device("cuda", index) for index in range(plan.devices)]
    return [torch.device("cpu")]


def forward_of(plan: Plan, net: nn.Module) -> Forward:
    """How this process computes the net's outputs.

    A function and no module: `net` stays the owner of its parameters, so their names never change with the strategy.
    """
    if plan.strategy.wrap == "dp":
        if plan.accelerator == "gpu":
            return nn.DataParallel(AutocastWrapper(net, plan), device_ids=list(range(plan.devices))).__call__
        return CpuDataParallel(net, plan.devices)
    if plan.strategy.wrap == "stages":
        assert isinstance(net, Staged)
        return PipelineStages(net.stages, devices_of(plan), plan.strategy.micro_batches)
    return net.__call__


def move_to_devices(plan: Plan, net: nn.Module) -> None:
    """Move the net to where it computes: to the process's first device, or each stage to its own."""
    devices = devices_of(plan)
    net.to(devices[0])
    if plan.strategy.wrap == "stages":
        assert isinstance(net, Staged)
        PipelineStages(net.stages, devices, plan.strategy.micro_batches).to_devices()
