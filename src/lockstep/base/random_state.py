"""The state of all random generators of a process, as tensors and plain values: for checkpoints, and to restore it."""

import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import nn

from lockstep.base.private_api.torch import DROPOUT


def random_state(devices: Sequence[torch.device] = ()) -> dict[str, Any]:
    """Return the state of Python's, NumPy's and torch's generators, and of the GPUs among the devices."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    return {
        "python": random.getstate(),
        "numpy": [kind, torch.from_numpy(keys), *rest],
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state(device) for device in devices if device.type == "cuda"],
    }


def restore_random_state(state: Mapping[str, Any], devices: Sequence[torch.device] = ()) -> None:
    """Set every generator to a state that `random_state` returned."""
    kind, keys, *rest = state["numpy"]
    random.setstate(state["python"])
    np.random.set_state((kind, keys.numpy(), *rest))
    torch.set_rng_state(state["torch"])
    gpus = (device for device in devices if device.type == "cuda")
    for device, gpu_state in zip(gpus, state["cuda"], strict=False):  # none if it was saved on a CPU
        torch.cuda.set_rng_state(gpu_state, device)


def seed_rank(seed: int, rank: int) -> None:
    """Seed the generators of a rank, each rank differently: for dropout and the like."""
    seed_all(seed + 1 + rank)


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def seed_by(*numbers: int) -> None:
    """Seed Python's, NumPy's and torch's generator for the CPU by a hash; `seed_all` takes ten times as long."""
    seed = int.from_bytes(blake2b(struct.pack(f"<{len(numbers)}q", *numbers), digest_size=8).digest(), "little")
    torch.default_generator.manual_seed(seed >> 1)
    np.random.seed(seed & 0xFFFFFFFF)
    random.seed(seed)


@contextmanager
def preserve_generators(devices: Sequence[torch.device] = ()) -> Iterator[None]:
    """Restore the generators afterwards."""
    state = random_state(devices)
    try:
        yield
    finally:
        restore_random_state(state, devices)


def seeded(seed: int, call: Callable[[], Any]) -> Any:
    """Call a function under the run's seed, so that it draws the same on every rank; preserve the generators."""
    with preserve_generators():
        seed_all(seed)
        return call()


def has_dropout(net: nn.Module) -> bool:
    """Whether a layer of a net drops some of its inputs while it trains."""
    layers = [module for module in net.modules() if isinstance(module, nn.RNNBase | nn.MultiheadAttention)]
    rates = [module.p for module in net.modules() if isinstance(module, DROPOUT)]
    return any(rate > 0 for rate in (*rates, *(layer.dropout for layer in layers)))
