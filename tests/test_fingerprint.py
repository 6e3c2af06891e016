"""Fingerprints and digests: equal states are equal, and one changed bit is seen in its kind."""

import hashlib
import struct
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, Optimizer

from lockstep.runs.record.fingerprint import digest, fingerprints


def test_digest_is_sha256_of_the_bytes_in_order() -> None:
    state = {"b": torch.tensor([[1.0, 2.0], [3.0, 4.0]]).T, "a": torch.tensor(7)}  # a transposed view, and a number
    by_hand = struct.pack("<4f", 1.0, 3.0, 2.0, 4.0) + struct.pack("<q", 7)
    assert digest(state) == hashlib.sha256(by_hand).hexdigest()


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_sparse_buffers_count_as_if_dense() -> None:
    dense = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    sparse = [dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse().cpu()]
    assert {digest({"a": tensor}) for tensor in sparse} == {digest({"a": dense})}
    assert digest({"a": dense}) != digest({"a": (dense + 1).to_sparse()})


def trained() -> tuple[nn.Module, Optimizer]:
    """Two steps of Adam on a convolution and a BatchNorm."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3))
    optimizer = Adam(net.parameters(), lr=0.1)
    for _ in range(2):
        net(torch.randn(4, 2, 5, 5)).square().mean().backward()
        optimizer.step()
    return net, optimizer


def test_by_hand() -> None:
    """One weight of a net without buffers, under SGD that has no state: names, types, shapes and bytes in order."""
    net = nn.Linear(2, 1, bias=False)
    nn.init.constant_(net.weight, 1.5)
    optimizer = SGD(net.parameters(), lr=0.25)
    weights = b"weight torch.float32 (1, 2)\n" + struct.pack("<2f", 1.5, 1.5)
    numbers = ("dampening", 0), ("lr", 0.25), ("maximize", 0), ("momentum", 0), ("nesterov", 0), ("weight_decay", 0)
    group = b"weight\n" + b"".join(f"{name}[0]\n".encode() + struct.pack("<d", value) for name, value in numbers)
    expected = [hashlib.sha256(content).hexdigest() for content in (weights, b"", group)]
    assert [*fingerprints(net, [optimizer]).values()] == expected


def seen(change: Callable[[nn.Module, Any], object]) -> list[bool]:
    """Return whether the fingerprints of weights, buffers and optimizer differ after a change."""
    net, optimizer = trained()
    before = fingerprints(net, [optimizer])
    with torch.no_grad():
        change(net, optimizer)
    return [after != before[kind] for kind, after in fingerprints(net, [optimizer]).items()]


def in_the_last_bit(tensor: torch.Tensor) -> None:
    flat = tensor.view(-1)
    flat[-1] = torch.nextafter(flat[-1], torch.tensor(9.0))


def step_as_number(net: nn.Module, optimizer: Any) -> None:
    for state in optimizer.state.values():
        state["step"] = int(state["step"])


def through_a_checkpoint(net: nn.Module, optimizer: Any) -> None:
    optimizer.load_state_dict(deepcopy(optimizer.state_dict()))


def in_another_order(net: nn.Module, optimizer: Any) -> None:
    for parameter, state in reversed([*optimizer.state.items()]):
        del optimizer.state[parameter]
        optimizer.state[parameter] = dict(reversed(state.items()))


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (lambda net, _: in_the_last_bit(net[0].weight), "weights"),
        (lambda net, _: in_the_last_bit(net[1].running_var), "buffers"),
        (lambda net, optimizer: in_the_last_bit(optimizer.state[net[0].weight]["exp_avg_sq"]), "optimizer"),
        (lambda _, optimizer: optimizer.param_groups[0].update(lr=0.1 * 1.01), "optimizer"),
        (lambda _, optimizer: optimizer.param_groups[0].update(foreach=True), ""),
        (lambda net, _: net.to(memory_format=torch.channels_last), ""),
        (step_as_number, ""),
        (through_a_checkpoint, ""),
        (in_another_order, ""),
    ],
)
def test_changes_are_seen_in_their_kind(change: Callable[[nn.Module, Any], object], kinds: str) -> None:
    assert seen(change) == [kind == kinds for kind in ("weights", "buffers", "optimizer")]
