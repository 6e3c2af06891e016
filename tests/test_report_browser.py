"""Chromium draws the page without an error."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lockstep.runs.report import page_of, page_of_several, render
from tests.test_report import EVIL, write_run

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--enable-logging=stderr")


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_a_browser_draws_the_curves_without_an_error(tmp_path: Path) -> None:
    jobs = [write_run(tmp_path / "sweep" / str(n), shift=0.1 * n, lr=0.1 * (n + 1)) for n in range(3)]
    for name, content in {
        "run": page_of(write_run(tmp_path / EVIL.replace("/", "_"))),
        "pair": page_of_several(jobs[:2]),
        "sweep": page_of(tmp_path / "sweep"),
    }.items():
        (tmp_path / f"{name}.html").write_text(render(content))
        command = [str(BROWSER), *OPTIONS, "--virtual-time-budget=2000", "--dump-dom", f"file://{tmp_path}/{name}.html"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=100, env={"HOME": str(tmp_path)})
        assert not re.findall("CONSOLE.*", ended.stderr), ended.stderr
        assert ended.stdout.count("<svg") >= 3
        assert "<script>alert" not in ended.stdout
