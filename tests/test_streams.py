"""Standard streams that are full or unread do not fail a run."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.comparing import metrics_in
from tests.conftest import ROOT, Command, Ended

SMALL = ("data=points", "data.samples=37", "batch_size=8", "model.net.hidden=[4]", "max_epochs=3", "accelerator=cpu")
LEFT = {
    "checkpoints",
    "config.yaml",
    "confusion.csv",
    "metrics.json",
    "record.jsonl",
    "csv",
    "report.html",
    "report.json",
}


def in_shell(
    command: Command, line: str, *overrides: str, program: tuple[str, ...] = (str(ROOT / "train.py"),)
) -> Ended:
    """Run the command in place of "$@" in a line of the shell."""
    return command("bash", "-c", f"set -o pipefail; {line}", "bash", sys.executable, *program, *overrides)


def check_complete(run: Path) -> None:
    metrics = metrics_in(run)
    assert (metrics["epochs"], metrics["steps"]) == (3, 15)
    assert {path.name for path in run.iterdir()} == LEFT | {"ranks"}
    kinds = Counter(next(iter(json.loads(line))) for line in (run / "record.jsonl").read_text().splitlines())
    assert (kinds["run"], kinds["step"], kinds["tensor"]) == (1, 15, 4), "two layers"
    assert (run / "ranks" / "1.log").is_file()


@pytest.mark.slow
def test_a_run_outlives_its_reader(command: Command) -> None:
    job = (*SMALL, "strategy=ddp", "devices=2", "logger=csv", "hydra.run.dir=run")
    ended = in_shell(command, '"$@" 2>/dev/full | head -1', *job)
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith("MLP on Points, ddp × 2, lightning")
    check_complete(command.folder / "run")


def printed(code: str, line: str, **environment: str) -> "subprocess.CompletedProcess[bytes]":
    program = f"import os, sys; from lockstep.base.streams import *; {code}"
    shell = ["bash", "-c", line, "bash", sys.executable, "-c", program]
    variables = {**os.environ, "PYTHONUNBUFFERED": "", **environment}
    return subprocess.run(shell, capture_output=True, timeout=180, env=variables, check=False)


@pytest.mark.parametrize(
    "code",
    [
        "outlive_readers(); print('x', flush=True); print('y', flush=True)",
        "print('before'); outlive_readers(); print('after'); os.write(1, b'C++')",
    ],
)
def test_output_to_a_full_device_is_dropped(code: str) -> None:
    ended = printed(code, '"$@" >/dev/full')
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_no_line_is_lost_if_the_process_is_killed(unbuffered: str) -> None:
    code = "outlive_readers(); print('out'); print('err', file=sys.stderr); os._exit(0)"
    ended = printed(code, '"$@"', PYTHONUNBUFFERED=unbuffered)
    assert (ended.stdout, ended.stderr) == (b"out\n", b"err\n")
    code = "os.set_blocking(1, False); outlive_readers(); [print('x' * 999) for _ in range(500)]"
    ended = printed(code, '"$@" | (sleep 0.5; wc -c)', PYTHONUNBUFFERED=unbuffered)
    assert (ended.stdout, ended.stderr) == (b"500000\n", b""), "a non-blocking pipe gets everything"


def test_text_that_cannot_be_encoded_is_escaped() -> None:
    code = "outlive_readers(); print(os.fsdecode(b'r\\xff'), '…'); print(os.fsdecode(b'e\\xff'), file=sys.stderr)"
    assert printed(code, '"$@"', PYTHONIOENCODING="utf-8").stdout == b"r\\udcff \xe2\x80\xa6\n"
    ended = printed(code, '"$@"', PYTHONIOENCODING="ascii")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"r\\udcff \\u2026\n", b"e\\udcff\n")
