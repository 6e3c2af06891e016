"""Plain values that tell tensors, samples, generators and states apart."""

import pickle
import random
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import IterableDataset

from lockstep.base.private_api.torch import unobserved
from lockstep.base.structures import map_tensors, tensors_in
from lockstep.check.comparison import COUNT, DATASET, Sketches

GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
LONGEST, READING = 100, 2.0
"""Tensors of a list; seconds for which samples are read."""


def digest(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()


def sketch(tensors: Iterable[tuple[str, Tensor | None]]) -> Sketches:
    """Return the sketches of the tensors that are there."""
    sketches = {}
    for name, tensor in tensors:
        if tensor is not None:
            with unobserved(tensor):
                values = tensor.detach().double().cpu()
                rows = values.reshape(len(values), -1) if values.dim() and values.numel() else values.reshape(1, -1)
                flat, projected = values.flatten(), (rows @ direction(rows.shape[1])).sort().values
                numbers = flat.norm(), flat @ direction(len(flat)), projected @ direction(len(projected))
                sketches[name] = [*map(float, numbers)]
    return sketches


@lru_cache(256)
def direction(size: int) -> Tensor:
    return torch.arange(size, dtype=torch.float64).mul_(0.7).cos_()


def sums(tensor: Tensor) -> list[float]:
    """Return the size of a sample, and the sum over samples of their projections, and of the squares of these."""
    with unobserved(tensor):
        rows = tensor.detach().double().cpu().reshape(len(tensor), -1)
        projected = rows @ direction(rows.shape[1])
        return [float(rows.shape[1]), float(projected.sum()), float(projected @ projected)]


def batch_size_of(batch: Any) -> int:
    """Return the number of samples: the first dimension of the first tensor, 0 if there is none."""
    return next((len(leaf) for leaf in tensors_in(batch) if leaf.dim()), 0)


def sample_hashes(batch: Any) -> list[str]:
    """Return a hash of each sample's content, of the tensors that have its dimension; of the batch, if none has."""
    size = batch_size_of(batch)
    if not size:
        return [digest(pickle.dumps(map_tensors(Tensor.tolist, batch)))]
    tensors = [leaf for leaf in tensors_in(batch) if leaf.dim() and len(leaf) == size]
    arrays = [tensor.detach().cpu().reshape(size, -1).float().numpy() for tensor in tensors]
    return [digest(b"".join(without_padding(array[row]) for array in arrays)) for row in range(size)]


def without_padding(row: Any) -> bytes:
    """Return the bytes of a row without 0 and -100 at its end: as many as the longest sample of the batch needs."""
    others = np.flatnonzero((row != 0) & (row != -100))
    content: bytes = row[: others[-1] + 1 if len(others) else 0].tobytes()
    return content


def reading(loader: Any) -> dict[str, Any]:
    """Return the samples of an epoch, or of as much of it as a second or two read."""
    samples, until = [], time.monotonic() + READING
    for batch in loader if hasattr(loader, "dataset") else ():
        samples += sample_hashes(batch)
        if time.monotonic() > until:
            return {"samples": samples, "complete": False}
    return {"samples": samples, "complete": True}


def attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield what lies in plain attributes of a module and its submodules, by its name."""
    for prefix, part in module.named_modules():
        yield from ((f"{prefix}.{name}".lstrip("."), value) for name, value in vars(part).items())


def hidden_state(module: nn.Module) -> Sketches:
    """Return sketches of the numbers, tensors, optimizers and schedules in plain attributes: no state_dict has them."""
    hidden: dict[str, Tensor] = {}
    for name, value in attributes(module):
        if isinstance(value, Tensor | float):
            hidden[name] = torch.as_tensor(value)
        elif type(value) is int:
            hidden[f"{name} {COUNT}"] = torch.tensor(value)
        elif isinstance(value, torch.optim.Optimizer):
            norms = [tensor.double().norm() for tensor in tensors_in([*value.state.values()])]
            hidden[f"{name} (optimizer)"] = torch.stack(norms) if norms else torch.zeros(1)
        elif isinstance(value, LRScheduler):
            hidden[name] = torch.tensor(value.last_epoch)
        elif isinstance(value, list | dict) and not name.rpartition(".")[2].startswith("_"):
            parts = value.values() if isinstance(value, dict) else value
            states = [part.state_dict() if isinstance(part, nn.Module) else part for part in parts]
            hidden |= {f"{name}[{n}]": each for n, each in enumerate(tensors_in(states)[:LONGEST])}
    return sketch(hidden.items())


def gradients(module: nn.Module) -> Sketches:
    return sketch((name, parameter.grad) for name, parameter in module.named_parameters())


def generators(module: nn.Module, trainer: Trainer | None = None) -> dict[str, str]:
    """Return hashes of the states of all generators that the module, or its dataset in this process, may draw from."""
    named = [*attributes(module), ("torch", torch.default_generator)]
    dataset = getattr(getattr(trainer, "train_dataloader", None), "dataset", None)
    while dataset is not None and not isinstance(dataset, IterableDataset):  # which may well shuffle alike
        named += [(f"{DATASET}{name}", value) for name, value in getattr(dataset, "__dict__", {}).items()]
        dataset = getattr(dataset, "dataset", None)  # of a Subset
    states = {name: state_of(value) for name, value in named if isinstance(value, GENERATORS)}
    states |= {"random": repr(random.getstate()).encode(), "numpy": pickle.dumps(np.random.get_state())}
    return {name: digest(state) for name, state in states.items()}


def state_of(generator: Any) -> bytes:
    """Return the state of one of the `GENERATORS`."""
    if isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes()
    if isinstance(generator, np.random.Generator):
        return repr(generator.bit_generator.state).encode()
    if isinstance(generator, np.random.RandomState):
        return pickle.dumps(generator.get_state())
    return repr(generator.getstate()).encode()
