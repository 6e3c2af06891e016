"""`python -m lockstep.new`: a set that runs at once, or one sentence and nothing written."""

import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from lockstep.new import command, write
from tests.conftest import ROOT, require_refused


def test_a_project_keeps_the_files_that_it_has(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    written = write("my_net", tmp_path)
    assert [path.name for path in written[-2:]] == [".gitignore", "pyproject.toml"]
    assert (tmp_path / "README.md").read_text() == "mine"
    assert tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]["name"] == "my_net"


def test_in_a_checkout_it_lies_beside_lockstep(tmp_path: Path) -> None:
    (tmp_path / "src" / "lockstep").mkdir(parents=True)
    (tmp_path / "train.py").touch()
    written = [str(path.relative_to(tmp_path)) for path in write("mine", tmp_path)]
    assert written == [
        *("src/mine/__init__.py", "src/mine/data.py", "src/mine/data_module.py", "src/mine/lightning_module.py"),
        *("src/mine/net.py", "conf/data/mine.yaml", "conf/data/mine_module.yaml", "conf/experiment/mine.yaml"),
        *("conf/model/mine.yaml", "conf/model/mine_module.yaml", "conf/optimizer/mine.yaml", "tests/test_mine.py"),
    ]
    assert "example" not in "".join((tmp_path / path).read_text() for path in written)
    there = f"cd {tmp_path} && python train.py model=mine data=mine strategy=ddp devices=2 engine=both"
    assert command("mine", tmp_path) == there


LETTERS = "a package has a name of small letters, digits and _; write my_net, say."
INVALID = {
    **dict.fromkeys(("My-Net", "true", "../up", "class"), LETTERS),
    **dict.fromkeys(("json", "mlp"), "there is a module or an option of this name already; write another name."),
    "there": "",
}


@pytest.mark.parametrize("name", INVALID)
def test_a_name_that_cannot_be(name: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "precious.py").touch()
    require_refused(f"NAME={name}: {INVALID[name]}", lambda: write(name, tmp_path))
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "there", tmp_path / "there" / "precious.py"]


def test_help_is_instant_and_imports_no_torch() -> None:
    began = time.monotonic()
    words = [sys.executable, "-X", "importtime", "-m", "lockstep.new", "--help"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True, cwd=ROOT)
    assert "model=NAME data=NAME" in ended.stdout
    assert not {"torch", "hydra", "omegaconf"} & {line.split("|")[-1].strip() for line in ended.stderr.splitlines()}
    assert time.monotonic() - began < 5
