"""Both engines against the oracle: float64, every parameter and buffer, 1e-10.

Other worlds equal one process by test_parity_matrix.py.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lockstep.datamodules import Digits, Line
from lockstep.nets.cnn import CNN
from lockstep.nets.lenet import LeNet, SplitCNN
from lockstep.plan import Plan
from tests.conftest import IN_PROCESS
from tests.inspections import plan_here
from tests.oracle import Oracle, largest_difference, one_cycle, spared_groups, warmup_linear
from tests.rank_helpers import ENGINES, run_plans

pytestmark = [*IN_PROCESS, pytest.mark.timeout(600)]
COMMON = (
    *("batch_size=12", "max_epochs=2", "seed=9", "precision=64-true", "accelerator=cpu", "threads=1", "logger=none"),
    "test=false",
)
DIGITS = ("data=digits", "data.test_size=1724", "data.val_size=12")
"""61 digits: six batches an epoch, the last of one sample, which only one rank of several has."""

SETTINGS = {
    "batchnorm": [
        *DIGITS,
        *("model=cnn", "model.net.norm=batch", "optimizer=sgd", "optimizer.lr=0.02", "optimizer.momentum=0.9"),
        *("scheduler=onecycle", "scheduler.warmup_fraction=0.4"),
    ],
    "cnn": [
        *DIGITS,
        *("model=cnn", "model.net.norm=none", "optimizer=sgd", "optimizer.lr=0.1", "optimizer.weight_decay=0.1"),
        *("scheduler=warmup_linear", "scheduler.warmup_steps=3", "accumulate_grad_batches=2"),
    ],
    "lenet": [
        *DIGITS,
        *(
            "model=lenet",
            "model.net.dropout=0",
            "optimizer=adamw_groups",
            "optimizer.lr=1e-3",
            "optimizer.weight_decay=0.1",
        ),
        *("scheduler=warmup_linear", "scheduler.warmup_steps=4"),
    ],
    "split_cnn": [
        *DIGITS,
        *("model=split_cnn", "optimizer=sgd", "optimizer.lr=0.1", "optimizer.momentum=0.9", "gradient_clip_val=0.5"),
        *("scheduler=onecycle", "scheduler.warmup_fraction=0.5", "accumulate_grad_batches=4"),
    ],
    "line": [
        *("model=regression", "data=line", "data.samples=61", "data.val_size=0", "optimizer=sgd"),
        *(
            "optimizer.lr=0.01",
            "optimizer.momentum=0.9",
            "drop_last=true",
            "accumulate_grad_batches=3",
            "gradient_clip_val=0.05",
        ),
    ],
    "spared": [
        *DIGITS,
        *("model=cnn", "model.net.norm=batch", "optimizer=adamw_groups", "optimizer.lr=1e-3"),
        *("optimizer.weight_decay=0.1", "gradient_clip_val=0.5", "accumulate_grad_batches=3"),
    ],
}


def oracle(setting: str, wrong: str = "") -> Oracle:
    """Return the setting in plain PyTorch."""
    if setting == "line":
        inputs, targets = Line(samples=61, val_size=0).load()["train"]
    else:
        images, targets = Digits(val_size=12, test_size=1724).load()["train"]
        inputs = (images.double() / 255 - 0.1555) / 0.2769
    nets: dict[str, Callable[[], nn.Module]] = {
        "cnn": lambda: CNN((1, 28, 28), 10, "none"),
        "lenet": lambda: LeNet((1, 28, 28), 10, dropout=0.0),
        "split_cnn": lambda: SplitCNN((1, 28, 28), 10),
        "line": lambda: nn.Linear(1, 1),
    }
    torch.manual_seed(9)
    net = nets.get(setting, lambda: CNN((1, 28, 28), 10, "batch"))().double()
    data = net, inputs, targets, 9, 12, 2
    match setting:
        case "batchnorm":  # twelve steps
            sgd = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
            return Oracle(*data, sgd, schedule=one_cycle(0.4, 12), wrong=wrong)
        case "cnn":  # two batches a step, the third of an epoch with 12 + 1 samples
            sgd = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.1)
            schedule = warmup_linear(3, 6)
            return Oracle(*data, sgd, accumulate=2, schedule=schedule, wrong=wrong)
        case "lenet":
            adamw = torch.optim.AdamW(spared_groups(net, 0.1, wrong), lr=1e-3)
            return Oracle(*data, adamw, schedule=warmup_linear(4, 12), wrong=wrong)
        case "split_cnn":  # steps of four batches and of two
            sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            return Oracle(*data, sgd, accumulate=4, clip=0.5, schedule=one_cycle(0.5, 4), wrong=wrong)
        case "line":  # five batches of twelve, in steps of three and of two
            sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
            return Oracle(*data, sgd, accumulate=3, clip=0.05, drop_last=True, wrong=wrong)
        case _:
            adamw = torch.optim.AdamW(spared_groups(net, 0.1, wrong), lr=1e-3)
            return Oracle(*data, adamw, accumulate=3, clip=0.5, wrong=wrong)


WORLDS = [("single", 1), ("ddp", 2)]
NORMED = ("batchnorm", "spared")
Cell = tuple[str, str, int]
"""Setting, strategy, devices."""


CELLS: list[Cell] = [(setting, *world) for world in WORLDS for setting in SETTINGS]


def plan_of(cell: Cell, folder: Path) -> Plan:
    """Return the plan of a cell, by the engines in turn: test_parity_matrix.py shows that they are one."""
    setting, strategy, devices = cell
    engine = [*ENGINES][([*SETTINGS].index(setting) + WORLDS.index((strategy, devices))) % 2]
    sync = ["sync_batchnorm=true"] if setting in NORMED and strategy == "ddp" else []
    world = [f"strategy={strategy}", f"devices={devices}", f"engine={engine}"]
    return plan_here([*COMMON, *SETTINGS[setting], *world, *sync], folder / setting)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Cell], list[Tensor]]:
    """Return the parameters and buffers after the run of a cell; all cells of a world run by one start of its ranks."""
    folders: dict[tuple[str, int], Path] = {}

    def trained(cell: Cell) -> list[Tensor]:
        setting, key = cell[0], cell[1:]
        if key not in folders:
            folders[key] = tmp_path_factory.mktemp("world")
            run_plans([plan_of(each, folders[key]) for each in CELLS if each[1:] == key], folders[key])
        last = folders[key] / setting / "checkpoints" / "last.ckpt"
        return list(torch.load(last, weights_only=True)["state_dict"].values())

    return trained


@cache
def expected(setting: str) -> list[Tensor]:
    return oracle(setting).train()


@pytest.mark.parametrize(
    "cell", [pytest.param(cell, marks=[pytest.mark.slow] * (cell[1] == "ddp"), id=str(cell)) for cell in CELLS]
)
def test_cell(cell: Cell, trained: Callable[[Cell], list[Tensor]]) -> None:
    assert largest_difference(trained(cell), expected(cell[0])) < 1e-10


WRONG = [
    *(("lenet", wrong) for wrong in ("order", "ragged", "schedule", "decay")),
    *(("split_cnn", wrong) for wrong in ("schedule", "clip", "window")),
    *(("cnn", "ragged"), ("batchnorm", "batchnorm"), ("line", "window")),
]


@pytest.mark.parametrize(("setting", "wrong"), WRONG)
def test_a_deviation_is_caught(setting: str, wrong: str, trained: Callable[[Cell], list[Tensor]]) -> None:
    assert largest_difference(trained((setting, "single", 1)), oracle(setting, wrong).train()) > 1e-6
