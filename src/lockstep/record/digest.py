"""SHA-256 over the bytes of tensors."""

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def digest(state: "Mapping[str, Tensor]") -> str:
    """Return the SHA-256 of every parameter and buffer, in state_dict order; values that are no tensors are skipped."""
    from lockstep.structures import tensors_of  # with torch

    sha = hashlib.sha256()
    for tensor in tensors_of(state).values():
        sha.update(tensor_bytes(tensor))
    return sha.hexdigest()


def tensor_bytes(tensor: "Tensor") -> memoryview:
    """Return the elements in logical order, whatever the strides."""
    import torch

    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
