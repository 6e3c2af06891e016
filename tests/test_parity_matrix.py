"""What is owed, as one table: every net under every strategy, by both engines, 12 steps with a ragged last batch.

Lightning = raw bit for bit in float32; every cell = single to 1e-10 in float64, where the raw engine stands for both. A
cell that makes no sense is refused by name.
"""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.build import plan_from
from lockstep.command_line.compose import compose_job
from lockstep.compare import compare
from lockstep.config_error import ConfigError
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.run_files import Metrics
from tests.rank_helpers import ENGINES, on_ranks

LINE = ["data=line", "data.samples=61", "data.val_size=12"]
POINTS = ["data=points", "data.samples=61"]
DIGITS = ["data=digits", "data.test_size=1724", "data.val_size=12"]  # 61 are left to train on
NETS = {
    "linear": ["model=linear", *LINE],
    "mlp-points": ["model=mlp", "model.hidden=[30,20]", *POINTS],
    "mlp": ["model=mlp", "model.hidden=[32]", *DIGITS],
    "lenet": ["model=lenet", "dropout_rng=global", *DIGITS],
    "cnn": ["model=cnn", "model.norm=none", *DIGITS],
    "cnn-sync": ["model=cnn", "model.norm=batch", "sync_batchnorm=true", *DIGITS],
    "split_cnn": ["model=split_cnn", *DIGITS],
}
OPTIMIZERS = {
    "sgd": ["optimizer=sgd", "optimizer.lr=0.01", "optimizer.momentum=0.9"],
    "adam": ["optimizer=adam", "optimizer.lr=1e-3"],
}
RUNS = (("32-true", "lightning"), ("32-true", "raw"), ("64-true", "raw"))
WORLDS = [
    ("single", 1),
    ("ddp", 2),
    ("ddp", 3),
    ("ddp", 4),
    ("ddp_spawn", 2),
    ("fsdp", 2),
    ("fsdp", 3),
    ("dp", 2),
    ("dp", 3),
    ("model_parallel", 2),
]
COMMON = [
    *(
        "batch_size=12",
        "max_epochs=2",
        "seed=11",
        "threads=1",
    ),  # six batches an epoch, the last of one sample, which leaves all ranks but one empty
    *("accelerator=cpu", "logger=none", "test=false"),
]


def refusal_of(net: str, strategy: str) -> str | None:
    """Why a cell of the table cannot be, in the words that say so."""
    if strategy == "model_parallel" and net != "split_cnn":
        return "strategy=model_parallel needs a net with stages, and it has none"
    if strategy == "dp" and net == "cnn-sync":
        return "sync_batchnorm=true: each replica of strategy=dp normalises its own slice of the batch"
    return None


def plan_of(net: str, optimizer: str, strategy: str, devices: int, *more: str, folder: Path) -> Plan:
    world = [f"strategy={strategy}", f"devices={devices}"]
    config, _ = compose_job([*COMMON, *NETS[net], *OPTIMIZERS[optimizer], *world, *more])
    return plan_from(config, folder)


Cell = tuple[str, str, str, int]
"""Net, optimizer, strategy, devices."""

ALL_CELLS: list[Cell] = [
    (net, optimizer, strategy, devices)
    for strategy, devices in WORLDS
    for net in NETS
    for optimizer in OPTIMIZERS
    if refusal_of(net, strategy) is None
]


def is_tried(cell: Cell) -> bool:
    """Each net in each world by one optimizer; where there is but one net, by both."""
    net, optimizer, strategy, devices = cell
    places = [*NETS].index(net), WORLDS.index((strategy, devices)), [*OPTIMIZERS].index(optimizer)
    return sum(places) % 2 == 0 or strategy == "model_parallel"


CELLS = [cell for cell in ALL_CELLS if is_tried(cell)]
QUICK_WORLDS = [("single", 1), ("ddp", 2), ("model_parallel", 2)]
"""No more ranks than the cores that a test may count on; test_oracle.py and test_raw.py have replicas."""


def is_quick(cell: Cell) -> bool:
    return cell[2:] in QUICK_WORLDS


def test_cells_meet_each_pair() -> None:
    """Each net each world, and both of them each optimizer."""
    for of in (lambda cell: cell[:2], lambda cell: (cell[0], cell[2:]), lambda cell: (cell[1], cell[2:])):
        assert {*map(of, CELLS)} == {*map(of, ALL_CELLS)}
    assert len(CELLS) < 0.55 * len(ALL_CELLS)


def plans_of(strategy: str, devices: int, folder: Path) -> list[Plan]:
    """The runs of a world's cells; of one device by each optimizer in float64 too, for others to be compared with."""
    wanted = [(cell, run) for cell in CELLS if cell[2:] == (strategy, devices) for run in RUNS]
    if strategy == "single":
        wanted += [((net, optimizer, strategy, devices), RUNS[2]) for net in NETS for optimizer in OPTIMIZERS]
        wanted += [(("split_cnn", optimizer, strategy, devices), RUNS[1]) for optimizer in OPTIMIZERS]
    return [
        plan_of(*cell, f"precision={run[0]}", f"engine={run[1]}", folder=folder.joinpath(*cell[:2], *run))
        for cell, run in dict.fromkeys(wanted)
    ]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """The folder of the runs of a world: made once, by one start of its ranks."""
    made: dict[tuple[str, int], Path] = {}

    def runs_of(strategy: str, devices: int) -> Path:
        if (strategy, devices) not in made:
            folder = tmp_path_factory.mktemp(f"{strategy}-{devices}")
            (folder / "plans").write_bytes(pickle.dumps(plans_of(strategy, devices, folder)))
            on_ranks(plan_of("split_cnn", "sgd", strategy, devices, folder=folder), run_all)
            made[strategy, devices] = folder
        return made[strategy, devices]

    return runs_of


def run_all(plan: Plan, context: RankContext) -> Metrics:
    """On a rank: every plan of this world."""
    plans: list[Plan] = pickle.loads((Path(plan.run_dir) / "plans").read_bytes())
    for one in plans:
        Path(one.run_dir).mkdir(parents=True, exist_ok=True)
        ENGINES[one.engine.name](one, context)
    return {"runs": len(plans)}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(cell, marks=() if is_quick(cell) else pytest.mark.slow, id="-".join(map(str, cell)))
        for cell in CELLS
    ],
)
def test_cell(cell: Cell, world: Callable[[str, int], Path]) -> None:
    net, optimizer, strategy, devices = cell
    ours = world(strategy, devices) / net / optimizer
    engines = compare(ours / "32-true" / "lightning", ours / "32-true" / "raw")
    assert engines.verdict == "identical", engines.text()
    assert engines.quantities["loss"].compared == 12
    single = world("single", 1) / net / optimizer
    across = compare(single / "64-true" / "raw", ours / "64-true" / "raw", tolerance=1e-10)
    assert across.within_tolerance, across.text()
    if strategy == "model_parallel":
        staged = compare(single / "32-true" / "raw", ours / "32-true" / "lightning")
        assert staged.verdict == "identical", staged.text()


@pytest.mark.parametrize(
    ("net", "strategy"),
    sorted({(net, strategy) for net in NETS for strategy, _ in WORLDS if refusal_of(net, strategy)}),
)
def test_cells_that_make_no_sense_are_refused(net: str, strategy: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        plan_of(net, "sgd", strategy, 2, folder=tmp_path)
    assert str(refusal_of(net, strategy)) in str(raised.value)


@pytest.mark.timeout(300)
def test_the_table_can_fail(world: Callable[[str, int], Path]) -> None:
    """Sums in another order are other bits; another optimizer is another run."""
    single, two = world("single", 1) / "mlp", world("ddp", 2) / "mlp"
    [optimizer] = [cell[1] for cell in CELLS if cell[0] == "mlp" and cell[2] == "ddp" and cell[3] == 2]
    bits = compare(single / optimizer / "64-true" / "raw", two / optimizer / "64-true" / "raw", tolerance=0.0)
    assert bits.verdict == "different"
    optimizers = compare(single / "sgd" / "64-true" / "raw", single / "adam" / "64-true" / "raw", tolerance=1e-10)
    parted = [one for one in optimizers.quantities.values() if one.first is not None]
    assert [one.name for one in sorted(parted, key=lambda one: one.when)][:2] == ["configuration", "learning rate"]
