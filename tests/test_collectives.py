"""The command `python -m lockstep.collectives`: its table, its files, invalid input; by torchrun too."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.collectives.__main__ import main
from lockstep.collectives.primitives import PRIMITIVES
from lockstep.collectives.tour import Options
from tests.conftest import Command
from tests.zygote import zygote


@pytest.fixture
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_tour(in_tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices=3", "root=2"]) == 0
    out = capsys.readouterr().out
    *parts, last = out.split("\n\n")
    tables = {part.partition(":")[0]: re.findall(r"^  rank (\d) .* (\S+)$", part, re.MULTILINE) for part in parts}
    assert [*tables] == [primitive.name for primitive in PRIMITIVES]
    anything = [("0", "–"), ("1", "–"), ("2", "pass")]
    for name, ranks in tables.items():
        assert ranks == (anything if name in ("reduce", "gather") else [(str(rank), "pass") for rank in range(3)])
    assert last.startswith(f"{3 * len(PRIMITIVES) - 4} checks passed, 0 failed\n")
    assert "  rank 0  10 -11  →  20 -21  pass\n" in out


def test_a_failed_check_is_the_exit_status(
    in_tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ring is expected to give the largest numbers, as it does on neither rank."""
    maximum = next(one for one in PRIMITIVES if one.name == "all-reduce (max)")
    wrong = [replace(one, expected=maximum.expected) if one.name == "ring all-reduce" else one for one in PRIMITIVES]
    monkeypatch.setattr("lockstep.collectives.tour.PRIMITIVES", wrong)
    assert main(["devices=2"]) == 1
    assert "26 checks passed, 2 failed (ring all-reduce)" in capsys.readouterr().out


@pytest.mark.slow
def test_by_torchrun(command: Command) -> None:
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    ended = command(*torchrun, "-m", "lockstep.collectives", "timeout=30", **zygote().for_scripts)
    assert ended.status == 0, ended.err
    assert ended.out.count("28 checks passed, 0 failed") == 1, "rank 0 alone prints"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["devices=2", "root=2"], "root=2: the ranks are 0 to 1; write root=1."),
        (["backend=glo"], "it is not one of the possible values (did you mean gloo?); write backend=gloo"),
        (["device=2"], "device=2: there is no such key (did you mean devices?); write devices=VALUE."),
        (["tour"], "tour=null: there is no such key"),
    ],
)
def test_invalid_input(words: list[str], message: str, capsys: pytest.CaptureFixture[str], in_tmp_path: Path) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(in_tmp_path.iterdir()), "nothing was started"


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert {*Options.__dataclass_fields__} <= {*re.findall(r"\w+", capsys.readouterr().out)}
