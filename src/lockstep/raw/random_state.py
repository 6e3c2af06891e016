"""The generators of Python, NumPy and torch: seeded, and put back."""

import hashlib
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from lockstep.raw.trainer import Trainer


def seed_by(*numbers: int) -> None:
    """Seed all generators by a hash: the first 8 bytes of BLAKE2b over the numbers, each a little-endian int64."""
    packed = struct.pack(f"<{len(numbers)}q", *numbers)
    seed = int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little")
    torch.default_generator.manual_seed(seed >> 1)
    np.random.seed(seed & 0xFFFFFFFF)
    random.seed(seed)


def seed_evaluation(trainer: "Trainer", stage: str, batch: int = -1, loader: int = -1) -> None:
    """Seed by (seed, epoch, stage, loader, batch, rank); for hooks between batches alike on every rank."""
    epoch, rank = trainer.record.epoch if stage == "val" else 0, 0 if batch < 0 else trainer.global_rank
    seed_by(trainer.config.seed, epoch, 1 if stage == "val" else 2, loader, batch, rank)
    if trainer.device.type == "cuda":
        torch.cuda.manual_seed(torch.initial_seed())


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def generators() -> tuple[Any, ...]:
    """Return the states of all generators."""
    gpu = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), gpu


@contextmanager
def preserved_generators(seed: int | None = None, states: tuple[Any, ...] | None = None) -> Iterator[None]:
    """Put the generators back afterwards; within, they may begin at a seed, or in states of before."""
    before = generators()
    if seed is not None:
        seed_all(seed)
    if states is not None:
        set_generators(*states)
    try:
        yield
    finally:
        set_generators(*before)


def set_generators(python: Any, numpy: Any, cpu: Tensor, gpu: Tensor | None) -> None:
    random.setstate(python)
    np.random.set_state(numpy)
    torch.set_rng_state(cpu)
    if gpu is not None:
        torch.cuda.set_rng_state(gpu)
