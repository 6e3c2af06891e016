"""The state of all random generators of a process, as tensors and plain values: for checkpoints, and to restore it."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lockstep.private_api.numpy import generator_memory


def random_state(devices: Sequence[torch.device]) -> dict[str, Any]:
    """The state of Python's, NumPy's and torch's generators, and of these GPUs' among the devices."""
    version, internal, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(internal), gauss],
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state(device) for device in devices if device.type == "cuda"],
    }


def restore_random_state(state: Mapping[str, Any], devices: Sequence[torch.device]) -> None:
    """Set every generator to what `random_state` returned."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    gpus = (device for device in devices if device.type == "cuda")
    for device, own in zip(gpus, state["cuda"], strict=False):  # saved on a CPU, say: then there is none
        torch.cuda.set_rng_state(own, device)


def seed_rank(seed: int, rank: int) -> None:
    """Give this rank random streams of its own, for dropout and the like."""
    seed_all(seed + 1 + rank)


def seed_all(seed: int) -> None:
    """Seed Python's, NumPy's and torch's generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@dataclass(frozen=True)
class NumpyState:
    """What numpy's generator was, and the memory that holds it."""

    state: Any
    memory: bytes | None

    def holds(self) -> bool:
        """Whether nothing has been drawn since. False where it cannot be told: the memory lacks a cached Gaussian."""
        return self.memory is not None and not self.state[3] and self.memory == generator_memory()

    def restore(self) -> None:
        if not self.holds():
            np.random.set_state(self.state)


_last = NumpyState(None, None)


def numpy_state() -> NumpyState:
    """numpy takes 50 µs to tell its state; it is asked where it may have changed."""
    global _last
    if not _last.holds():
        _last = NumpyState(np.random.get_state(), generator_memory())
    return _last


@contextmanager
def generators_kept() -> Iterator[None]:
    """The three generators go on afterwards as if nothing had been drawn: a rank's dropout uses them too."""
    states = torch.get_rng_state(), numpy_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        states[1].restore()
        random.setstate(states[2])


def seeded(seed: int, call: Callable[[], Any]) -> Any:
    """Call a function under the run's seed, so that it draws the same on every rank."""
    with generators_kept():
        seed_all(seed)
        return call()
