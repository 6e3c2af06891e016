"""SHA-256 over the bytes of tensors."""

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def digest(state: "Mapping[str, Tensor]") -> str:
    """SHA-256 over the bytes of every parameter and buffer, in state_dict order; what is no tensor is left out."""
    sha = hashlib.sha256()
    for tensor in tensors_of(state).values():
        sha.update(tensor_bytes(tensor))
    return sha.hexdigest()


def tensors_of(state: "Mapping[str, Any]") -> "dict[str, Tensor]":
    """Without what layers put in by `get_extra_state`, which may be anything."""
    import torch

    return {name: own for name, own in state.items() if isinstance(own, torch.Tensor)}


def tensor_bytes(tensor: "Tensor") -> memoryview:
    """Its elements in logical order, whatever its strides."""
    import torch

    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
