"""Which random numbers are equal on all ranks (the weights), and which differ (what is drawn while training)."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from lockstep import nets
from lockstep.data.tensors import TensorData
from lockstep.memory_format import memory_format_of
from lockstep.plan import Plan
from lockstep.precision import dtype_of


def build_model(plan: Plan, data: TensorData) -> nn.Module:
    """The net with its first weights: drawn under the run's seed before anything else, the same on every rank.

    They are drawn in float32, and widened for a run in float64 before any checkpoint could be loaded into them.

    Raises:
        ConfigError: the net cannot have the plan's memory format.
    """
    net = plain_net(plan, data).to(dtype_of(plan))
    return net.to(memory_format=memory_format_of(plan, net))


def plain_net(plan: Plan, data: TensorData) -> nn.Module:
    """The same weights in float32, as torch lays them out."""
    torch.manual_seed(plan.seed)
    options = {key: value for key, value in vars(plan.model).items() if key != "name"}
    return nets.create(plan.model.name, data.shape, data.outputs, **options)


def seed_rank(seed: int, rank: int) -> None:
    """Give this rank random streams of its own, for dropout and the like."""
    own = seed + 1 + rank
    random.seed(own)
    np.random.seed(own % 2**32)
    torch.manual_seed(own)


def random_state(devices: Sequence[torch.device]) -> dict[str, Any]:
    """Where the generators of Python, NumPy, torch and the process's GPUs stand, in tensors and plain values."""
    version, internal, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(internal), gauss],
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state(device) for device in devices if device.type == "cuda"],
    }


def restore_random_state(state: Mapping[str, Any], devices: Sequence[torch.device]) -> None:
    """Let every generator go on from where `random_state` was taken."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    gpus = (device for device in devices if device.type == "cuda")
    for device, own in zip(gpus, state["cuda"], strict=False):  # saved on a CPU, say: then there is none
        torch.cuda.set_rng_state(own, device)
