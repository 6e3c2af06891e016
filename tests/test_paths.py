"""Folders with spaces, `=`, quotes and letters that are not ASCII work like any other, and can be pasted."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.base.config_error import shell_quote_override
from tests.comparing import metrics_in
from tests.conftest import ROOT, Command

ODD = "Läufe = nächste, 'x' & y"
SMALL = ("data=points", "model.net.hidden=[4]", "logger=none", "accelerator=cpu")

NASTY = [
    *("plain/a-b_1.5", "two words", "a=b", "größe/日本", "it's", 'say "so"', "'", "''", '"', "a,b", "[1,2]", "{a: b}"),
    *("$HOME", "${now:%Y}", "$(ls)", "`ls`", "back\\slash", "ends\\", "\\'", "\\\\", "\\${x}", "!!", "*", "~", "#1"),
    *(" ", " in front", "behind ", "null", "true", "a:b", "(x)", "%", ";", "&", "|", "<>", "a'b\"c$d`e\\f!g"),
]


@pytest.mark.slow
def test_an_override_can_be_pasted_into_a_shell() -> None:
    """All at once by bash, then by Hydra."""
    script = "import sys; from lockstep.command.compose import compose_job as compose; import json; "
    script += "print(json.dumps([compose([one])[0].name for one in sys.argv[1:]]))"
    words = " ".join(shell_quote_override("name", nasty) for nasty in NASTY)
    ended = subprocess.run(["bash", "-c", f"{sys.executable} -c '{script}' {words}"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    read = [str(name).lower() if isinstance(name, bool | None) else str(name) for name in json.loads(ended.stdout)]
    expected = ["none" if nasty == "null" else nasty for nasty in NASTY]
    assert read == expected


def shell(command: Command, line: str) -> str:
    """A line as it is typed; what it prints."""
    ended = command("bash", "-c", line.replace("python ", f"{sys.executable} ", 1))
    assert ended.status == 0, ended.err
    assert ended.err == ""
    return ended.out


@pytest.mark.slow
def test_odd_folders_work(tmp_path: Path) -> None:
    """Train, test its checkpoint, go on with it, compare the two, sweep."""
    command = Command(tmp_path / ODD)
    command.folder.mkdir()
    (command.folder / "train.py").symlink_to(ROOT / "train.py")
    (command.folder / "conf").symlink_to(ROOT / "conf")
    train = " ".join(["python train.py", *SMALL])
    run = command.folder / ODD
    shell(command, f"{train} max_epochs=2 {shell_quote_override('hydra.run.dir', ODD)}")
    checkpoint = shell_quote_override("ckpt_path", run / "checkpoints" / "last.ckpt")
    tested = shell(command, f"{train} train=false {checkpoint} {shell_quote_override('hydra.run.dir', 'tested ü')}")
    assert f"testing {run}/checkpoints/last.ckpt" in tested
    resumed = shell(command, f"{train} max_epochs=4 resume=true {shell_quote_override('hydra.run.dir', run)}")
    assert f"resuming from {run}/checkpoints/last.ckpt" in resumed
    assert metrics_in(run)["epochs"] == 4
    shutil.copytree(run, command.folder / "a=b")
    compared = command(sys.executable, "-m", "lockstep.compare", str(run), "a=b")
    assert compared.status == 0, compared.out + compared.err
    sweep = train.replace("train.py", "train.py -m")
    shell(command, f"{sweep} max_epochs=1 seed=7 {shell_quote_override('hydra.sweep.dir', 'ü = 2')}")
    assert (command.folder / "ü = 2" / "sweep.csv").is_file()
    assert len(list((command.folder / "ü = 2").glob("*/metrics.json"))) == 1
    assert not command.survivors()
