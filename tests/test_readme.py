"""Each command of the README runs as it stands there, and its map is of the files that there are."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.conftest import MNIST_ROOT, ROOT, Command

README = (ROOT / "README.md").read_text()
TABLE = re.findall(r"^\| `((?:python train\.py|torchrun|tensorboard)[^`]*)` \|", README, re.MULTILINE)


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


@pytest.mark.parametrize("line", TABLE)
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
    start = {"python": [sys.executable], "torchrun": [sys.executable, "-m", "torch.distributed.run"]}[program]
    ended = command(*start, *arguments, timeout=110)
    assert ended.status == 0, ended.err


def test_from_python_as_it_stands_there() -> None:
    [code] = re.findall(r"The same from Python: `([^`]*)`", README)
    compile(code, "README.md", "exec")
    from lockstep import run

    assert callable(run)


def test_the_map_names_every_module() -> None:
    [chart] = re.findall(r"## The map\n\n```\n(.*?)```", README, re.DOTALL)
    for path in (ROOT / "src" / "lockstep").iterdir():
        if path.name not in ("__init__.py", "__pycache__"):
            assert (f"{path.name}/" if path.is_dir() else path.name) in chart


def test_the_map_names_every_group() -> None:
    groups = {path.name for path in (ROOT / "conf").iterdir() if path.is_dir()} - {"hydra"}
    assert all(f" {group}" in README for group in groups)
    assert Path(ROOT / "LICENSE").read_text().startswith("MIT License")
