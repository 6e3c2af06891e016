"""Folders with spaces, `=`, quotes and letters that are not ASCII work like any other, and can be pasted."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.base.config_error import shell_quote_override
from lockstep.command.compose import compose_job
from tests.comparing import metrics_in
from tests.conftest import ROOT, Command
from tests.zygote import zygote

ODD = "Läufe = nächste, 'x' & y"
SMALL = ("data=points", "model.net.hidden=[4]", "logger=none", "accelerator=cpu")

NASTY = [
    *("plain/a-b_1.5", "two words", "a=b", "größe/日本", "it's", 'say "so"', "'", "''", '"', "a,b", "[1,2]", "{a: b}"),
    *("$HOME", "${now:%Y}", "$(ls)", "`ls`", "back\\slash", "ends\\", "\\'", "\\\\", "\\${x}", "!!", "*", "~", "#1"),
    *(" ", " in front", "behind ", "null", "true", "a:b", "(x)", "%", ";", "&", "|", "<>", "a'b\"c$d`e\\f!g"),
]


def test_an_override_can_be_pasted_into_a_shell() -> None:
    """All at once by bash, then by Hydra."""
    words = " ".join(shell_quote_override("name", nasty) for nasty in NASTY)
    printed = subprocess.check_output(["bash", "-c", f"printf '%s\\0' {words}"], text=True).split("\0")
    keys = [f"+name{number}{word.removeprefix('name')}" for number, word in enumerate(printed[:-1])]
    config = compose_job(keys)[0]
    read = [config[f"name{number}"] for number in range(len(keys))]
    assert [str(name).lower() if isinstance(name, bool | None) else str(name) for name in read] == [
        "none" if nasty == "null" else nasty for nasty in NASTY
    ]


def shell(command: Command, line: str) -> str:
    """A line as it is typed; what it prints."""
    ended = command("bash", "-c", line, **zygote().for_scripts)
    assert ended.status == 0, ended.err
    assert ended.err == ""
    return ended.out


@pytest.mark.slow
def test_odd_folders_work(tmp_path: Path) -> None:
    """Train, go on with its checkpoint, compare with a copy."""
    command = Command(tmp_path / ODD)
    command.folder.mkdir()
    (command.folder / "train.py").symlink_to(ROOT / "train.py")
    (command.folder / "conf").symlink_to(ROOT / "conf")
    train = " ".join(["python train.py", *SMALL])
    run = command.folder / ODD
    shell(command, f"{train} max_epochs=2 {shell_quote_override('hydra.run.dir', ODD)}")
    resumed = shell(command, f"{train} max_epochs=4 resume=true {shell_quote_override('hydra.run.dir', run)}")
    assert f"resuming from {run}/checkpoints/last.ckpt" in resumed
    assert metrics_in(run)["epochs"] == 4
    shutil.copytree(run, command.folder / "a=b")
    compared = command(sys.executable, "-m", "lockstep.compare", str(run), "a=b")
    assert compared.status == 0, compared.out + compared.err
    assert not command.survivors()
