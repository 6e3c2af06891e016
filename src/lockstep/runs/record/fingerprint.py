"""SHA-256 of tensors: the digest of a net, and fingerprints of a rank's weights, buffers and optimizer states.

Fingerprints are of names, shapes, types and bits, sorted by name, in logical order whatever the strides; a step counter
counts alike as a tensor and as a number.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.base.optimizers import IMPLEMENTATION
from lockstep.base.structures import tensors_of
from lockstep.runs.run_files import FINGERPRINTED, REPLICATED
from lockstep.strategies.parallel.tensor_layout import copied_part, is_here, local_shard

Values = Iterator[tuple[str, object]]


def digest(state: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of every parameter and buffer, in state_dict order; values that are no tensors are skipped."""
    sha = hashlib.sha256()
    for tensor in tensors_of(state).values():
        sha.update(tensor_bytes(tensor))
    return sha.hexdigest()


def tensor_bytes(tensor: Tensor) -> memoryview:
    """Return the elements in logical order, whatever the strides or the layout: those of sparse tensors as if dense."""
    return tensor.detach().cpu().to_dense().contiguous().reshape(-1).view(torch.uint8).numpy().data


def fingerprints(net: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, str]:
    """Return a hexadecimal digest for each of FINGERPRINTED, of what this rank has.

    If ranks have parts of some weights, add a digest of those of which several ranks have a copy, for each part.
    """
    weights = {name: weight for name, weight in net.named_parameters() if is_here(weight)}
    states = sorted(weights.items()), sorted(buffers_of(net).items()), _optimizer_values(optimizers, weights)
    by_kind = dict(zip(FINGERPRINTED, states, strict=True))
    parts = {name: copied_part(weight) for name, weight in weights.items()}
    if any(part != "" for part in parts.values()):
        for part in sorted({part for part in parts.values() if part is not None}):
            copies = sorted((name, weight) for name, weight in weights.items() if parts[name] == part)
            by_kind[f"{REPLICATED} {part}".strip()] = copies
    return {kind: _sha256(values) for kind, values in by_kind.items()}


def buffers_of(net: nn.Module) -> dict[str, Tensor]:
    """Return the buffers that a checkpoint holds, by name; they share the net's memory."""
    parameters = {name for name, _ in net.named_parameters(remove_duplicate=False)}
    return tensors_of({name: value for name, value in net.state_dict().items() if name not in parameters})


def _optimizer_values(optimizers: Sequence[Optimizer], weights: dict[str, nn.Parameter]) -> Values:
    """Yield the parameter names and options of each optimizer's groups, then the state of each parameter."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in weights.items()}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for name in sorted(names.get(parameter, "?") for parameter in group["params"]):
                yield name, None
            for key in sorted(group.keys() - {"params", *IMPLEMENTATION}):
                values = group[key] if isinstance(group[key], tuple | list) else [group[key]]
                yield from ((f"{key}[{index}]", value) for index, value in enumerate(values) if value is not None)
        states = [(names.get(parameter, "?"), state) for parameter, state in optimizer.state.items()]
        for name, state in sorted(states, key=lambda pair: pair[0]):
            yield from ((f"{name}.{key}", value) for key, value in sorted(state.items()) if value is not None)


def _sha256(values: Any) -> str:
    """Hash names and values: numbers, and tensors without dimensions, as float64; of None the name alone."""
    sha = hashlib.sha256()
    for name, value in values:
        if isinstance(value, Tensor | int | float):
            tensor = local_shard(value) if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
            kind = f" {tensor.dtype} {tuple(tensor.shape)}" if tensor.dim() else ""
            sha.update(f"{name}{kind}\n".encode())
            sha.update(tensor_bytes(tensor if kind else tensor.double()))
        else:
            sha.update(f"{name}\n".encode() if value is None else f"{name} {value!r}\n".encode())
    return sha.hexdigest()
