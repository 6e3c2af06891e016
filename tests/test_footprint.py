"""What a plan takes at the least, against nets that are built and what autograd really keeps."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lockstep import data
from lockstep.config_error import ConfigError
from lockstep.memory import footprint
from lockstep.memory import limit as memory_limit
from lockstep.seeding import plain_net
from tests.conftest import MakePlan

NETS = [
    ("model=mlp", "data=digits", "model.hidden=[17,5]"),
    ("model=mlp", "data=points", "model.hidden=[3]"),
    ("model=linear", "data=line"),
    ("model=linear", "data=random_regression", "data.features=7", "data.outputs=3"),
    ("model=linear", "data=digits"),
    ("model=cnn", "data=digits", "model.norm=batch"),
    ("model=cnn", "data=digits", "model.norm=none"),
    ("model=lenet", "data=digits"),
    ("model=split_cnn", "data=digits"),
]


@pytest.mark.parametrize("overrides", NETS, ids=" ".join)
def test_parameters_and_what_autograd_keeps(make_plan: MakePlan, overrides: tuple[str, ...]) -> None:
    plan = make_plan(*overrides, "accelerator=cpu")
    tensors = data.load(plan.data)
    net = plain_net(plan, tensors)
    inputs, outputs = footprint.sample_sizes(plan.data)
    assert (inputs, outputs) == (tensors.train.inputs[0].numel(), tensors.outputs)
    own = sum(parameter.numel() for parameter in net.parameters())
    assert footprint.parameter_count(plan.model, inputs, outputs) == own
    assert 8 * footprint.activation_count(plan.model) * 4 <= kept_bytes(net, torch.rand(8, *tensors.shape))


def test_a_net_without_a_formula_counts_as_nothing() -> None:
    class Own:
        """A net of a stranger's."""

    assert footprint.parameter_count(Own(), 784, 10) == 0  # type: ignore[arg-type]
    assert footprint.activation_count(Own()) == 0  # type: ignore[arg-type]


def kept_bytes(net: nn.Module, inputs: Tensor) -> int:
    """What the graph of a forward holds beside the parameters, each piece of memory once."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in net.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = net(inputs)
    assert outputs.requires_grad
    return sum(kept.values())


def test_bytes_by_hand(make_plan: MakePlan) -> None:
    """2-3-2 on points: 17 parameters, and seven numbers of eight bytes for a sample and its place in the order."""
    line = ("data=points", "data.samples=100", "model.hidden=[3]", "batch_size=50", "accelerator=cpu")
    plan = make_plan(*line)
    assert footprint.weights_bytes(plan) == 17 * 4 * (1 + 1 + 2)  # weights, gradients, Adam's two
    assert footprint.data_bytes(plan) == 100 * (2 * 8 + 8 + 8)
    assert footprint.activation_bytes(plan) == 50 * 3 * 4
    double = make_plan(*line, "precision=64-true", "strategy=ddp", "devices=2", "optimizer=sgd", "optimizer.momentum=0")
    assert footprint.weights_bytes(double) == 2 * 17 * 8 * 2
    assert footprint.data_bytes(double) == 2 * 100 * 32
    assert footprint.activation_bytes(double) == 50 * 3 * 8


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            ["data=points"],
            "model.hidden=[256,128]: 33,922 parameters with gradients and optimizer state: the run takes",
        ),
        (["data=points", "data.samples=1000000"], "data.samples=1000000: 1,000,000 samples of 4 numbers"),
        (["data=line", "data.val_size=1000000", "model=linear"], "data.val_size=1000000: 1,010,000 samples of 2 numb"),
        (
            ["data=random_regression", "data.features=9999", "model=linear"],
            "data=random_regression: 90 samples of 10,001 numbers",
        ),
        (["model=cnn"], "model=cnn: 2,328,058 parameters with"),
        (
            ["model=cnn", "batch_size=1024"],
            "batch_size=1024: what the layers keep for the gradients: the ",
        ),
        (
            ["data=points", "strategy=ddp", "devices=2"],
            "922 parameters with gradients and optimizer state on 2 ranks",
        ),
    ],
)
def test_what_is_too_much_is_named(
    make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch, overrides: list[str], sentence: str
) -> None:
    monkeypatch.setattr(footprint, "memory_limit", lambda: 100_000)
    with pytest.raises(ConfigError) as raised:
        make_plan("accelerator=cpu", *overrides)
    assert sentence in str(raised.value)


def test_a_run_that_fits_is_not_refused(make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan("data=points", "accelerator=cpu")
    total = footprint.weights_bytes(plan) + footprint.data_bytes(plan) + footprint.activation_bytes(plan)
    monkeypatch.setattr(footprint, "memory_limit", lambda: total)
    make_plan("data=points", "accelerator=cpu")
    monkeypatch.setattr(footprint, "memory_limit", lambda: None)
    make_plan("data=points", "accelerator=cpu", "data.samples=1000000000")


def test_limits_of_cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's files, as both versions write them: an inner group, one around it, and one without a limit."""
    own, root = tmp_path / "cgroup", tmp_path / "fs"
    (root / "a" / "b").mkdir(parents=True)
    (root / "memory" / "c").mkdir(parents=True)
    (root / "a" / "b" / "memory.max").write_text("max\n")
    (root / "a" / "memory.max").write_text("5000\n")
    (root / "a" / "memory.swap.max").write_text("100\n")
    (root / "memory" / "c" / "memory.limit_in_bytes").write_text("7000\n")
    (root / "memory" / "memory.limit_in_bytes").write_text(f"{2**63 - 4096}\n")
    own.write_text("7:cpu,cpuacct:/x\n6:memory:/c\n0::/a/b\n")
    monkeypatch.setattr(memory_limit, "_swap", lambda: 30)  # the machine's, where no file limits it
    assert list(memory_limit.cgroup_limits(own, root)) == [7030, 5100]
    (root / "a" / "memory.swap.max").write_text("max\n")
    assert list(memory_limit.cgroup_limits(own, root)) == [7030, 5030]
    assert list(memory_limit.cgroup_limits(tmp_path / "none", root)) == []
    limit = memory_limit.memory_limit()
    assert limit is not None
    assert limit > 10**8
