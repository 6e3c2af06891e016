"""Fingerprints of what one rank holds in its memory: SHA-256 of its weights, its buffers, its optimizer's state.

Names, shapes, types and bits count, in an order that no engine decides: parameters by name, numbers in logical order
however a tensor lies in memory, a step counter alike as a tensor and as a number. So equal states have equal
fingerprints on every rank, in either engine and after a resume.
"""

import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.record.digest import tensor_bytes
from lockstep.run_files import FINGERPRINTED
from lockstep.structures import tensors_of

Held = Callable[[Tensor], Tensor]

IMPLEMENTATION = ("params", "foreach", "fused", "capturable", "differentiable")
"""Of a parameter group: what says how its step is computed, and is no state."""


def fingerprints(net: nn.Module, optimizers: Sequence[Optimizer], held: Held = lambda tensor: tensor) -> dict[str, str]:
    """Return one for each of FINGERPRINTED, in hexadecimal, of what is `held` of each tensor. Waits for a GPU."""
    weights = dict(net.named_parameters())
    shas = (_of_tensors(weights, held), _of_tensors(buffers_of(net), held), _of_optimizers(optimizers, weights, held))
    return dict(zip(FINGERPRINTED, shas, strict=True))


def buffers_of(net: nn.Module) -> dict[str, Tensor]:
    """Those that a checkpoint holds, by name; they share the net's memory."""
    parameters = {name for name, _ in net.named_parameters(remove_duplicate=False)}
    return tensors_of({name: own for name, own in net.state_dict().items() if name not in parameters})


def _of_tensors(tensors: Mapping[str, Tensor], held: Held) -> str:
    sha = hashlib.sha256()
    for name in sorted(tensors):
        _add(sha, name, held(tensors[name]))
    return sha.hexdigest()


def _of_optimizers(optimizers: Sequence[Optimizer], weights: Mapping[str, Tensor], held: Held) -> str:
    """Of each optimizer the names and options of its groups, then the state of each parameter."""
    sha = hashlib.sha256()
    names = {parameter: name for name, parameter in weights.items()}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for name in sorted(names.get(parameter, "?") for parameter in group["params"]):
                sha.update(f"{name}\n".encode())
            for key in sorted(group.keys() - set(IMPLEMENTATION)):
                values = group[key] if isinstance(group[key], tuple | list) else [group[key]]
                for index, value in enumerate(values):
                    _add(sha, f"{key}[{index}]", value)
        states = [(names.get(parameter, "?"), state) for parameter, state in optimizer.state.items()]
        for name, state in sorted(states, key=lambda pair: pair[0]):
            for key, value in sorted(state.items()):
                _add(sha, f"{name}.{key}", held(value) if isinstance(value, Tensor) else value)
    return sha.hexdigest()


def _add(sha: Any, name: str, value: object) -> None:
    """A number, or a tensor of no dimension, counts by its value in float64; None as if it were not there."""
    if isinstance(value, Tensor) and value.dim() > 0:
        sha.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        sha.update(tensor_bytes(value))
    elif isinstance(value, Tensor | int | float):
        sha.update(f"{name}\n".encode())
        sha.update(struct.pack("<d", value.item() if isinstance(value, Tensor) else value))
    elif value is not None:
        sha.update(f"{name} {value!r}\n".encode())
