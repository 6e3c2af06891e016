"""A bar over the whole run, in a terminal; the lines of epochs elsewhere."""

import re
import sys
from pathlib import Path

import pytest

from lockstep.engine.results import Display
from lockstep.runs.checkpoint.content import Progress
from tests.conftest import ROOT, MakePlan
from tests.terminal import Terminal

NET = ("data=digits", "model=mlp", "max_epochs=3", "threads=1", "logger=none", "test=false")
MODULE = ("model=example_module", "data=example_module", *NET[2:])


def test_it_goes_on_where_an_earlier_run_stopped(make_plan: MakePlan, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 4 epochs of 5 batches 7 are done; then an eighth."""
    plan = make_plan(*NET[:2], "batch_size=256", "max_epochs=4", "trainer.enable_progress_bar=true")
    display = Display(plan, rank=0)
    display.begin_epoch(Progress(epochs=1, batch=2, steps=7))
    display.end_batch({})
    display.show({"val/acc": 0.91234, "train/loss": 0.5})
    display.end_epoch(2, {})
    shown = capsys.readouterr()
    display.close()
    assert "8/20" in shown.err
    assert "epoch 2/4" in shown.err
    assert "val/acc 0.9123 train/loss 0.5" in shown.err
    assert not shown.out, "no line beside it"


def test_an_epoch_without_metrics_shows_those_of_its_last_batch(
    make_plan: MakePlan, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a GAN, which logs the losses of its two nets on each step alone."""
    plan = make_plan(*NET[:2], "max_epochs=2")
    display = Display(plan, rank=0)
    display.begin_epoch(Progress())
    display.show({"d_loss": 0.5})
    display.end_epoch(1, {})
    display.end_epoch(2, {"val/acc": 0.25})
    assert (
        re.sub(r"[\d.]+ s", "", capsys.readouterr().out) == "epoch 1/2  d_loss 0.5000  \nepoch 2/2  val/acc 0.2500  \n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("job", [NET, MODULE], ids=["net", "module"])
def test_a_terminal_shows_one_bar_over_the_run(job: tuple[str, ...], tmp_path: Path) -> None:
    command = (sys.executable, str(ROOT / "train.py"), *job, f"hydra.run.dir={tmp_path / 'run'}")
    terminal = Terminal(*command, folder=tmp_path, COLUMNS="100")
    terminal.wait_for("  run  ")
    assert terminal.process.wait(30) == 0
    assert len(set(re.findall(r"\d+/(\d+) \[", terminal.shown))) == 1, "one bar"
    assert "epoch 3/3:" in terminal.shown
    assert not re.search(r"epoch \d/3  ", terminal.shown), "no line beside it"
