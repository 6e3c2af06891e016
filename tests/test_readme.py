"""Each command of the README runs as it stands there, and its map is of the files that there are."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.conftest import MNIST_ROOT, ROOT, Command

README = (ROOT / "README.md").read_text()
TABLE = re.findall(r"^\| `((?:python train\.py|torchrun|tensorboard)[^`]*)` \|", README, re.MULTILINE)
TABLE = [line for line in TABLE if "experiment=" not in line]  # test_sources runs those
FIRST = 2
"""So many of the table's commands are run by `pytest`, the others by `pytest -m slow`."""


def test_the_table_is_found() -> None:
    assert len(TABLE) >= 10


def test_the_two_commands_stand_there() -> None:
    blocks = re.findall(r"```bash\n(.*?)\n```", README, re.DOTALL)
    assert blocks == [
        "pip install -e . && python train.py strategy=ddp devices=2",
        "pip install -e '.[dev]' && pytest",
    ]
    script = (ROOT / ".ci" / "run").read_text()
    assert "pip install -q -e . && python train.py strategy=ddp devices=2" in script
    assert "pip install -q -e '.[dev]' && pytest" in script


@pytest.mark.parametrize(
    "line",
    [pytest.param(line, marks=[pytest.mark.slow] if position >= FIRST else []) for position, line in enumerate(TABLE)],
)
def test_a_command_of_the_table(line: str, command: Command, request: pytest.FixtureRequest) -> None:
    program, *arguments = shlex.split(line)
    if program == "tensorboard":
        ended = command(sys.executable, "-m", "tensorboard.main", "--version_tb")
        assert ended.status == 0
        return
    for name in ("train.py", "conf", "src"):
        (command.folder / name).symlink_to(ROOT / name)
    if "data=mnist" in arguments:
        request.getfixturevalue("mnist")
        (command.folder / "data").symlink_to(MNIST_ROOT)
    if any("…" in argument for argument in arguments):
        [best] = command.train("max_epochs=1").folder.glob("logs/train/*/checkpoints/best.ckpt")
        arguments = [f"ckpt_path={best}" if "…" in argument else argument for argument in arguments]
    if {"resume=true", "ckpt_path=last"} & {*arguments}:
        command.train("max_epochs=1")
    start = {"python": [sys.executable], "torchrun": [sys.executable, "-m", "torch.distributed.run"]}[program]
    ended = command(*start, *arguments, timeout=110)
    assert ended.status == 0, ended.err
    if program == "python" and "-m" not in arguments:
        assert ended.err == "", "a command that works complains of nothing"


def test_compare_as_it_stands_there(command: Command) -> None:
    [line] = re.findall(r"^\| `(python -m lockstep\.compare [^`]*)` \|", README, re.MULTILINE)
    for name in ("a", "b"):
        command.train("engine=raw", "max_epochs=1", "logger=none", f"hydra.run.dir={name}")
    arguments = shlex.split(line.replace("RUN_A", "a").replace("RUN_B", "b"))[1:]
    ended = command(sys.executable, *arguments)
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.splitlines()[-1] == "identical; expected: identical"


def test_from_python_as_it_stands_there(command: Command) -> None:
    [code] = re.findall(r"The same from Python: `([^`]*)`", README)
    ended = command(sys.executable, "-c", f"{code}; print('DIGEST', metrics['digest'])")
    assert json.loads((ended.run_dir / "metrics.json").read_text())["digest"] in ended.out.split("DIGEST")[1]


def test_the_map_names_every_module() -> None:
    [chart] = re.findall(r"## The map\n\n```\n(.*?)```", README, re.DOTALL)
    for path in (ROOT / "src" / "lockstep").iterdir():
        if path.name not in ("__init__.py", "__pycache__"):
            assert (f"{path.name}/" if path.is_dir() else path.name) in chart


def test_the_map_names_every_group() -> None:
    groups = {path.name for path in (ROOT / "conf").iterdir() if path.is_dir()} - {"hydra"}
    [line] = [line for line in README.splitlines() if line.startswith("conf/ ")]
    assert groups == set(line.split("groups: ")[1].split())
    assert Path(ROOT / "LICENSE").read_text().startswith("MIT License")
