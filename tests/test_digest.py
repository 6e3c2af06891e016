"""A digest is of the bytes of tensors, in order, and of nothing else."""

import hashlib
import struct

import torch

from lockstep.record.digest import digest


def test_digest_is_sha256_of_the_bytes_in_order() -> None:
    state = {"b": torch.tensor([[1.0, 2.0], [3.0, 4.0]]).T, "a": torch.tensor(7)}  # a transposed view, and a number
    by_hand = struct.pack("<4f", 1.0, 3.0, 2.0, 4.0) + struct.pack("<q", 7)
    assert digest(state) == hashlib.sha256(by_hand).hexdigest()
    state["a"] += 1
    assert digest(state) != hashlib.sha256(by_hand).hexdigest()
