"""Lightning's bar in a terminal; elsewhere a line for each epoch."""

import re
import sys

import pytest

from lockstep.engine import run
from tests.conftest import IN_PROCESS, MakePlan
from tests.rank_helpers import ALONE

pytestmark = IN_PROCESS


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_bar_or_lines(
    is_terminal: bool, make_plan: MakePlan, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    run(make_plan("data=points", "data.samples=800", "max_epochs=2", "logger=none", "test=false"), ALONE)
    shown = capsys.readouterr().out
    assert ("Epoch 1:" in shown, "epoch 2/2  train/acc" in shown) == (is_terminal, not is_terminal)
    bars = re.findall(r"Epoch 1: .*?\[[\d:?]+, [^\r]*?loss=[\d.]+", shown)
    assert bool(bars) == is_terminal
    assert all(len(bar) <= 80 for bar in bars), bars
