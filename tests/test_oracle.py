"""Convolution, BatchNorm, schedules, spared biases, clipping and accumulation, by every strategy and both engines.

Float64, ragged batches, every parameter and buffer, 1e-10 from the plain loop of tests/oracle.py. Quick runs meet each
pair of setting, strategy and engine; the rest, and three ranks, are slow.
"""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lockstep.build import plan_from
from lockstep.command_line.compose import compose_job
from lockstep.data import digits
from lockstep.launch.topology import RankContext
from lockstep.nets.cnn import CNN
from lockstep.nets.lenet import LeNet
from lockstep.nets.split_cnn import SplitCNN
from lockstep.plan import Plan
from lockstep.run_files import Metrics
from tests.oracle import Oracle, largest_difference, one_cycle, spared_groups, warmup_linear
from tests.rank_helpers import ENGINES, on_ranks

pytestmark = [
    pytest.mark.usefixtures("process_as_it_was"),
    pytest.mark.timeout(200),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]
ALONE = RankContext(rank=0, world_size=1, local_rank=0, local_world_size=1)
COMMON = (
    *("data=digits", "data.test_size=1724", "data.val_size=12", "batch_size=12", "max_epochs=2", "seed=9"),
    *("precision=64-true", "accelerator=cpu", "threads=1", "logger=none", "test=false"),
)
"""61 digits: six batches an epoch, the last of one sample, which only one rank of several has."""

SETTINGS = {
    "batchnorm": [
        *("model=cnn", "model.norm=batch", "optimizer=sgd", "optimizer.lr=0.02", "optimizer.momentum=0.9"),
        *("scheduler=onecycle", "scheduler.warmup_fraction=0.4"),
    ],
    "cnn": [
        *("model=cnn", "model.norm=none", "optimizer=sgd", "optimizer.lr=0.1", "optimizer.weight_decay=0.1"),
        *("scheduler=warmup_linear", "scheduler.warmup_steps=3", "accumulate_grad_batches=2"),
    ],
    "lenet": [
        *("model=lenet", "model.dropout=0", "optimizer=adamw", "optimizer.lr=1e-3", "optimizer.weight_decay=0.1"),
        *("optimizer.decay_bias_and_norm=false", "scheduler=warmup_linear", "scheduler.warmup_steps=4"),
    ],
    "split_cnn": [
        *("model=split_cnn", "optimizer=sgd", "optimizer.lr=0.1", "optimizer.momentum=0.9", "gradient_clip_val=0.5"),
        *("scheduler=onecycle", "scheduler.warmup_fraction=0.5", "accumulate_grad_batches=4"),
    ],
    "spared": [
        *("model=cnn", "model.norm=batch", "optimizer=adamw", "optimizer.lr=1e-3", "optimizer.weight_decay=0.1"),
        *("optimizer.decay_bias_and_norm=false", "gradient_clip_val=0.5", "accumulate_grad_batches=3"),
    ],
}


def oracle(setting: str, wrong: str = "") -> Oracle:
    """What each setting asks for, in plain PyTorch."""
    split = digits.load(val_size=12, test_size=1724).train
    inputs = (split.inputs.double() / 255 - 0.1555) / 0.2769
    torch.manual_seed(9)
    net: nn.Module
    match setting:
        case "batchnorm" | "spared":
            net = CNN((1, 28, 28), 10, "batch").double()
        case "cnn":
            net = CNN((1, 28, 28), 10, "none").double()
        case "lenet":
            net = LeNet((1, 28, 28), 10, dropout=0.0).double()
        case "split_cnn":
            net = SplitCNN((1, 28, 28), 10).double()
    data = net, inputs, split.targets, 9, 12, 2
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
        case _:
            adamw = torch.optim.AdamW(spared_groups(net, 0.1, wrong), lr=1e-3)
            return Oracle(*data, adamw, accumulate=3, clip=0.5, wrong=wrong)


Cell = tuple[str, str, int, str]
"""Setting, strategy, devices, engine."""

QUICK: list[Cell] = [
    *(("batchnorm", "single", 1, "lightning"), ("batchnorm", "ddp", 2, "raw")),
    *(("cnn", "single", 1, "raw"), ("cnn", "dp", 2, "lightning"), ("cnn", "ddp", 2, "lightning")),
    *(("lenet", "single", 1, "lightning"), ("lenet", "dp", 2, "raw"), ("lenet", "ddp", 2, "lightning")),
    *(("split_cnn", "single", 1, "raw"), ("split_cnn", "dp", 2, "lightning"), ("split_cnn", "ddp", 2, "raw")),
    *(("split_cnn", "model_parallel", 2, engine) for engine in ENGINES),
    *(("spared", "single", 1, "raw"), ("spared", "ddp", 2, "lightning")),
]
WORLDS = [("single", 1), ("ddp", 2), ("ddp", 3), ("ddp_spawn", 2), ("dp", 2), ("dp", 3), ("model_parallel", 2)]
NORMED = ("batchnorm", "spared")


def makes_sense(setting: str, strategy: str) -> bool:
    """Stages there are in one net alone; replicas do not share their BatchNorm's statistics."""
    if strategy == "model_parallel":
        return setting == "split_cnn"
    return strategy != "dp" or setting not in NORMED


MORE: list[Cell] = [
    (setting, *world, [*ENGINES][(number + place) % 2])
    for number, world in enumerate(WORLDS)
    for place, setting in enumerate(SETTINGS)
    if makes_sense(setting, world[0])
]
"""Each setting in each world, by the engines in turn: test_raw.py and test_parity_matrix.py hold that these are one."""
CELLS = [*dict.fromkeys([*QUICK, *MORE])]


def test_any_two_meet() -> None:
    wholes = [(setting, *world, engine) for setting in SETTINGS for world in WORLDS for engine in ENGINES]
    for of in (lambda cell: cell[:3], lambda cell: (cell[0], cell[3]), lambda cell: cell[1:]):
        assert {*map(of, CELLS)} == {of(cell) for cell in wholes if makes_sense(cell[0], cell[1])}


def plan_of(cell: Cell, folder: Path) -> Plan:
    setting, strategy, devices, engine = cell
    sync = ["sync_batchnorm=true"] if setting in NORMED and strategy.startswith("ddp") else []
    world = [f"strategy={strategy}", f"devices={devices}", f"engine={engine}"]
    own = folder / f"{setting}-{strategy}-{devices}-{engine}"
    return plan_from(compose_job([*COMMON, *SETTINGS[setting], *world, *sync])[0], own)


def run_all(plan: Plan, context: RankContext) -> Metrics:
    """On a rank: every plan that lies in the folder."""
    plans: list[Plan] = pickle.loads((Path(plan.run_dir) / "plans").read_bytes())
    for one in plans:
        Path(one.run_dir).mkdir(exist_ok=True)
        ENGINES[one.engine.name](one, context)
    return {"runs": len(plans)}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Cell], list[Tensor]]:
    """What a cell ends with. The cells of several ranks that are wanted alike are run by one start of them."""
    folder = tmp_path_factory.mktemp("cells")

    def of(cell: Cell) -> list[Tensor]:
        plan = plan_of(cell, folder)
        last = Path(plan.run_dir) / "checkpoints" / "last.ckpt"
        if not last.exists() and not plan.strategy.distributed:
            Path(plan.run_dir).mkdir()
            ENGINES[cell[3]](plan, ALONE)
        elif not last.exists():
            alike = [other for other in CELLS if other[1:3] == cell[1:3] and (other in QUICK) == (cell in QUICK)]
            together = folder / f"{cell[1]}-{cell[2]}-{cell in QUICK}"
            together.mkdir()
            (together / "plans").write_bytes(pickle.dumps([plan_of(other, folder) for other in alike]))
            on_ranks(
                plan_from(compose_job([*COMMON, f"strategy={cell[1]}", f"devices={cell[2]}"])[0], together), run_all
            )
        return list(torch.load(last, weights_only=True)["state_dict"].values())

    return of


@pytest.fixture(scope="module")
def judge() -> Callable[[str], list[Tensor]]:
    """What the oracle ends with, by setting."""
    known: dict[str, list[Tensor]] = {}

    def of(setting: str) -> list[Tensor]:
        if setting not in known:
            known[setting] = oracle(setting).train()
        return known[setting]

    return of


@pytest.mark.parametrize(
    "cell", [pytest.param(cell, marks=[] if cell in QUICK else [pytest.mark.slow]) for cell in CELLS], ids=str
)
def test_cell(cell: Cell, trained: Callable[[Cell], list[Tensor]], judge: Callable[[str], list[Tensor]]) -> None:
    assert largest_difference(trained(cell), judge(cell[0])) < 1e-10


WRONG = [
    *(("lenet", wrong) for wrong in ("order", "ragged", "schedule", "decay")),
    *(("split_cnn", wrong) for wrong in ("schedule", "clip", "window")),
    *(("cnn", "ragged"), ("batchnorm", "batchnorm")),
]


@pytest.mark.parametrize(("setting", "wrong"), WRONG)
def test_a_deviation_is_caught(setting: str, wrong: str, trained: Callable[[Cell], list[Tensor]]) -> None:
    [ours, *_] = [cell for cell in QUICK if cell[:2] == (setting, "single")]
    assert largest_difference(trained(ours), oracle(setting, wrong).train()) > 1e-6


def test_quick_runs_meet_each_pair() -> None:
    """But for the start alone, three of a kind, and what makes no sense."""
    quick = [("ddp", 2), ("single", 1), ("dp", 2), ("model_parallel", 2)]
    cells = [cell for cell in CELLS if cell[1:3] in quick]
    for one, other in ((0, 1), (0, 3), (1, 3)):
        assert {(cell[one], cell[other]) for cell in QUICK} == {(cell[one], cell[other]) for cell in cells}
