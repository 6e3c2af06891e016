"""The state of all random generators of a process, as tensors and plain values: for checkpoints, and to restore it."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def random_state(devices: Sequence[torch.device]) -> dict[str, Any]:
    """Return the state of Python's, NumPy's and torch's generators, and of the GPUs among the devices."""
    version, internal, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(internal), gauss],
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state(device) for device in devices if device.type == "cuda"],
    }


def restore_random_state(state: Mapping[str, Any], devices: Sequence[torch.device]) -> None:
    """Set every generator to a state that `random_state` returned."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    gpus = (device for device in devices if device.type == "cuda")
    for device, gpu_state in zip(gpus, state["cuda"], strict=False):  # none if it was saved on a CPU
        torch.cuda.set_rng_state(gpu_state, device)


def seed_rank(seed: int, rank: int) -> None:
    """Seed the generators of a rank, each rank differently: for dropout and the like."""
    seed_all(seed + 1 + rank)


def seed_all(seed: int) -> None:
    """Seed Python's, NumPy's and torch's generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@contextmanager
def preserve_generators() -> Iterator[Callable[[], bool]]:
    """Restore Python's, NumPy's and torch's generators afterwards. Yields what `watch_draws` returns."""
    in_numpy, in_torch, in_python = np.random.get_state(), torch.get_rng_state(), random.getstate()
    try:
        yield watch_draws()
    finally:
        torch.set_rng_state(in_torch)
        np.random.set_state(in_numpy)
        random.setstate(in_python)


def watch_draws() -> Callable[[], bool]:
    """Return a function that returns whether Python or NumPy have drawn since now."""
    in_numpy: Any = np.random.get_state()
    in_python = random.getstate()

    def have_drawn() -> bool:
        _, keys, *rest = np.random.get_state()
        return rest != [*in_numpy[2:]] or not np.array_equal(keys, in_numpy[1]) or random.getstate() != in_python

    return have_drawn


def seeded(seed: int, call: Callable[[], Any]) -> Any:
    """Call a function under the run's seed, so that it draws the same on every rank; preserve the generators."""
    with preserve_generators():
        seed_all(seed)
        return call()
