"""Every strategy and world size against an independent plain loop: float64, every parameter, 1e-10."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

import lockstep
from lockstep.data.tensors import TensorData
from lockstep.run_files import Metrics
from tests.oracle import Oracle, largest_difference

WORLDS = [
    ("single", 1),
    ("ddp", 1),
    ("ddp", 2),
    ("ddp", 3),
    ("ddp", 4),
    ("ddp_spawn", 2),
]
QUICK_WORLDS = (("single", 1), ("ddp", 2), ("ddp", 3))
TOLERANCE = 1e-10


def train(folder: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str) -> tuple[list[Tensor], Metrics]:
    """Parameters after a run, read from its last checkpoint, and its metrics."""
    monkeypatch.chdir(folder)
    metrics = lockstep.run(["accelerator=cpu", "precision=64-true", "logger=none", *overrides])
    [checkpoint] = folder.glob("logs/train/*/checkpoints/last.ckpt")
    state = torch.load(checkpoint, weights_only=True)["state_dict"]
    return list(state.values()), metrics


def line(**changes: object) -> Oracle:
    """Linear regression on 101 samples of y = 2x + 3: batches of 12, the last of 5."""
    from lockstep.data.line import load

    split = load(slope=2.0, intercept=3.0, noise=0.1, samples=101, val_size=0).train
    torch.manual_seed(7)
    net = nn.Linear(1, 1).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    settings = {"seed": 7, "batch_size": 12, "epochs": 3, **changes}
    return Oracle(net, split.inputs, split.targets, optimizer=optimizer, **settings)  # type: ignore[arg-type]


LINE = [
    "model=linear",
    "data=line",
    "data.samples=101",
    "data.val_size=0",
    "optimizer=sgd",
    "optimizer.momentum=0.9",
    "seed=7",
    "batch_size=12",
    "max_epochs=3",
]


@pytest.mark.parametrize(("strategy", "devices"), WORLDS)
def test_line_with_a_ragged_batch(strategy: str, devices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, _ = train(tmp_path, monkeypatch, *LINE, f"strategy={strategy}", f"devices={devices}")
    assert largest_difference(ours, line().train()) < TOLERANCE
    assert largest_difference(ours, line(wrong="ragged").train()) > 1e-6
    assert largest_difference(ours, line(wrong="order").train()) > 1e-6


@pytest.mark.parametrize(("strategy", "devices"), [("single", 1), ("ddp", 2)])
@pytest.mark.parametrize(
    ("override", "change"),
    [
        ("accumulate_grad_batches=3", {"accumulate": 3}),
        ("gradient_clip_val=0.05", {"clip": 0.05}),
        ("drop_last=true", {"drop_last": True}),
    ],
)
def test_line_with_each_setting(
    strategy: str,
    devices: int,
    override: str,
    change: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, _ = train(tmp_path, monkeypatch, *LINE, f"strategy={strategy}", f"devices={devices}", override)
    assert largest_difference(ours, line(**change).train()) < TOLERANCE
    assert largest_difference(ours, line().train()) > 1e-6, "the setting must matter"


@pytest.mark.parametrize(
    ("strategy", "devices"),
    [pytest.param(*world, marks=() if world in QUICK_WORLDS else pytest.mark.slow) for world in WORLDS],
)
def test_mlp_on_mnist(strategy: str, devices: int, mnist: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = [
        "model=mlp",
        "model.hidden=[32]",
        "data=mnist",
        f"data.root={mnist}",
        "data.val_size=55001",  # 4,999 to train on: batches of 120, the last of 79
        "optimizer=adam",
        "batch_size=120",
        "max_epochs=2",
        "seed=5",
    ]
    ours, metrics = train(tmp_path, monkeypatch, *overrides, f"strategy={strategy}", f"devices={devices}")
    right, wrong = (mnist_by_hand(mnist, deviation) for deviation in ("", "ragged"))
    assert largest_difference(ours, right.parameters) < TOLERANCE
    assert largest_difference(ours, wrong.parameters) > 1e-6
    assert metrics["test/acc"] == right.accuracy
    assert metrics["test/loss"] == pytest.approx(right.loss, abs=1e-10)


class ByHand(NamedTuple):
    """What the plain loop ends with, and what it is worth on the 10,000 test images."""

    parameters: list[Tensor]
    accuracy: float
    loss: float


@cache
def mnist_by_hand(root: str, wrong: str) -> ByHand:
    """For all worlds, once."""
    oracle, raw = mnist_oracle(root, wrong)
    parameters = oracle.train()
    with torch.no_grad():
        outputs = oracle.net((raw.test.inputs.double() / 255 - 0.1307) / 0.3081)
    accuracy = (outputs.argmax(1) == raw.test.targets).double().mean().item()
    return ByHand(parameters, accuracy, oracle.loss_sum(outputs, raw.test.targets).item() / 10_000)


def mnist_oracle(root: str, wrong: str = "") -> tuple[Oracle, TensorData]:
    from lockstep.data.mnist import load

    raw = load(root, val_size=55_001, mean=0.0, std=1.0)
    torch.manual_seed(5)
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10)).double()
    inputs = (raw.train.inputs.double() / 255 - 0.1307) / 0.3081
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    return Oracle(net, inputs, raw.train.targets, 5, 120, 2, optimizer, wrong=wrong), raw


def test_started_by_the_agent_or_by_multiprocessing_is_bit_for_bit_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    digests = {}
    for strategy in ("ddp", "ddp_spawn"):
        for seed in (1, 2):
            overrides = [f"strategy={strategy}", "devices=2", f"seed={seed}", "max_epochs=2", "logger=none"]
            digests[strategy, seed] = lockstep.run(["accelerator=cpu", *overrides])["digest"]
    assert digests["ddp", 1] == digests["ddp_spawn", 1]
    assert digests["ddp", 2] == digests["ddp_spawn", 2]
    assert digests["ddp", 1] != digests["ddp", 2]


def test_more_ranks_than_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five points on four ranks, two to test on: some ranks hold nothing, in training and in evaluation."""
    points = ["experiment=toy_mlp", "batch_size=4", "max_epochs=20"]
    monkeypatch.chdir(tmp_path)
    runs = [
        lockstep.run([*points, f"strategy={strategy}", f"devices={devices}", "precision=64-true", "accelerator=cpu"])
        for strategy, devices in (("single", 1), ("ddp", 4))
    ]
    assert runs[0]["test/acc"] == runs[1]["test/acc"] == 1.0
    other = lockstep.run([*points, "strategy=single", "devices=1", "precision=64-true", "accelerator=cpu", "seed=124"])
    for metric in ("train/loss", "test/loss"):
        assert runs[0][metric] == pytest.approx(runs[1][metric], abs=1e-10)
        assert runs[0][metric] != pytest.approx(other[metric], abs=1e-6)
