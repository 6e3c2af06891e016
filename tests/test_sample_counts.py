"""A configuration that says another number of samples than the data has: refused before the first step."""

import sys
from pathlib import Path

import pytest
import torch

from lockstep import data, schemas
from lockstep.config_error import ConfigError
from lockstep.data import digits
from lockstep.data.tensors import TensorData, split_three
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.run_files import Metrics
from tests.conftest import ROOT, Command, MakePlan
from tests.rank_helpers import ENGINES, on_ranks

ALONE = RankContext(rank=0, world_size=1, local_rank=0, local_world_size=1)
QUICK = ("accelerator=cpu", "threads=1", "logger=none", "max_epochs=1", "model.hidden=[4]")
SENTENCE = (
    "data=digits: its train split holds 1257 samples, and Digits.train_samples says 960; "
    "write what is loaded into train_samples, in lockstep/schemas/data.py."
)


@pytest.mark.parametrize("engine", ENGINES)
def test_one_process_refuses(engine: str, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas.Digits, "total", 1500)  # 1,500 less 180 and 360
    plan = make_plan(*QUICK)
    with pytest.raises(ConfigError) as raised:
        ENGINES[engine](plan, ALONE)
    assert str(raised.value) == SENTENCE
    assert not (Path(plan.run_dir) / "record.jsonl").exists()


def wrongly_configured(plan: Plan, context: RankContext) -> Metrics:
    schemas.Digits.total = 1500
    return ENGINES[plan.engine.name](plan, context)


@pytest.mark.parametrize("engine", ENGINES)
def test_two_ranks_refuse(engine: str, make_plan: MakePlan) -> None:
    plan = make_plan(*QUICK, "strategy=ddp", "devices=2", f"engine={engine}")
    with pytest.raises(ConfigError) as raised:
        on_ranks(plan, wrongly_configured)
    assert str(raised.value) == SENTENCE


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ((1256, 181, 360), "its train split holds 1256 samples, and Digits.train_samples says 1257;"),
        ((1257, 179, 361), "its validation split holds 179 samples, and Digits.val_size says 180;"),
        ((1257, 180, 0), "its test split holds 0 samples, and Digits.test_size says 360;"),
    ],
)
def test_each_split_is_counted(sizes: tuple[int, int, int], named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(val_size: int, test_size: int) -> TensorData:
        rows = torch.zeros(sum(sizes), 1)
        return TensorData(*split_three(rows, rows, *sizes[1:]), outputs=10)

    monkeypatch.setattr(digits, "load", load)
    with pytest.raises(ConfigError, match=named):
        data.load(schemas.Digits("digits", val_size=180, test_size=360))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("world", [("single", 1), ("ddp", 2)])
def test_the_command_says_so_and_ends_in_status_2(command: Command, engine: str, world: tuple[str, int]) -> None:
    """The package as a user changed it: 1,797 rows, and a configuration that says 1,500."""
    package = command.folder / "src"
    for path in (ROOT / "src").rglob("*.py"):
        copy = package / path.relative_to(ROOT / "src")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text().replace("total: ClassVar[int] = 1797", "total: ClassVar[int] = 1500"))
    (command.folder / "conf").symlink_to(ROOT / "conf")
    (command.folder / "train.py").write_text((ROOT / "train.py").read_text())
    strategy, devices = world
    overrides = (*QUICK, f"engine={engine}", f"strategy={strategy}", f"devices={devices}")
    ended = command(sys.executable, str(command.folder / "train.py"), *overrides, PYTHONPATH=str(package))
    assert (ended.status, ended.err.strip()) == (2, SENTENCE)
