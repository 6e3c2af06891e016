"""Exact resume: a run that is killed at any step and resumed equals an uninterrupted run bit for bit."""

import datetime
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lockstep.base.errors import TrainingInterrupted
from lockstep.command.job import for_ranks
from lockstep.engine import run
from lockstep.launch.failure import RankFailed
from lockstep.launch.start import start_ranks
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.plan.schemas.run import ENGINES
from lockstep.runs.checkpoint.content import SECTION
from lockstep.runs.run_files import RECORD, Metrics
from tests.comparing import metrics_in, require_close
from tests.conftest import Command, MakePlan, events_of
from tests.rank_helpers import StopAfter, on_ranks
from tests.resuming import alike, going_on_with, killed, record, same_after_kill, start

DROPS = (
    *("data=digits", "data.test_size=1700", "data.val_size=20", "batch_size=12", "threads=1"),
    *("model=lenet", "model.net.dropout=0.5", "logger=none", "trainer.limit_test_batches=2"),
)
"""77 digits: seven batches an epoch, the last of five."""
MOMENTUM = ("optimizer=sgd", "optimizer.lr=0.05", "optimizer.momentum=0.9", "scheduler=onecycle", "max_epochs=2")
SINGLE, DDP = ("strategy=single", "devices=1"), ("strategy=ddp", "devices=2")
SAME = ("train/loss", "train/acc", "val/loss", "val/acc", "val/f1", "test/loss", "test/acc", "test/f1")
WORLDS = {"single": SINGLE, "ddp": DDP}


def in_folder(plan: Plan, folder: Path) -> Plan:
    folder.mkdir(exist_ok=True)
    return replace(plan, run_dir=str(folder))


KILLS: list[tuple[str, Sequence[int]]] = [("ddp", (2, 11))]
"""Before any checkpoint; behind one, within the second epoch."""
TODAY = random.Random(datetime.date.today().toordinal())
SLOW_KILLS = ("single", [TODAY.randrange(1, 15)])
"""In another step each day."""


@pytest.mark.parametrize(("world", "steps"), [*KILLS, pytest.param(*SLOW_KILLS, marks=pytest.mark.slow)])
def test_killed_at_each_step(world: str, steps: Sequence[int], make_plan: MakePlan, tmp_path: Path) -> None:
    """Dropout, momentum, a schedule, a ragged last batch; a checkpoint after every third step and each epoch."""
    plan = make_plan(*DROPS, *MOMENTUM, *WORLDS[world], "checkpoint.every_n_steps=3", "accelerator=cpu")
    reference = in_folder(plan, tmp_path / "whole")
    expected = start(reference)
    assert expected["steps"] == 14
    same_after_kill(reference, steps[0], *steps[1:], expected=expected)


HARDER = {
    "clipped": (
        *("optimizer=adamw", "gradient_clip_val=0.1", "scheduler=warmup_linear", "scheduler.warmup_steps=4"),
        *("drop_last=true", "precision=bf16-mixed"),
    ),
    "batchnorm": (*MOMENTUM[:4], "model=cnn", "batch_size=18"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", HARDER)
def test_killed_with_other_options(case: str, make_plan: MakePlan, tmp_path: Path) -> None:
    common = [word for word in DROPS if case != "batchnorm" or word not in ("model.net.dropout=0.5", "model=lenet")]
    plan = make_plan(*common, *DDP, "max_epochs=2", "checkpoint.every_n_steps=1", *HARDER[case])
    reference = in_folder(plan, tmp_path / "whole")
    expected = start(reference)
    same_after_kill(reference, 8, expected=expected)


def test_another_world_resumes_within_the_epoch(make_plan: MakePlan, tmp_path: Path) -> None:
    """In float64, without dropout, against an undisturbed run of the raw engine: at every step and in the metrics."""
    job: tuple[str, ...] = (*DROPS, *MOMENTUM, "model.net.dropout=0", "precision=64-true", "accelerator=cpu")
    raw = in_folder(make_plan(*job, *DDP, "engine=raw"), tmp_path / "raw")
    expected = start_ranks(for_ranks(raw), ENGINES["raw"])
    job += ("checkpoint.every_n_steps=2",)
    resumed = killed(in_folder(make_plan(*job, *DDP), tmp_path / "killed"), 6)
    other = replace(make_plan(*job, *SINGLE), ckpt_path=resumed.ckpt_path, resume=True)
    metrics = start(in_folder(other, tmp_path / "killed"))
    for key in SAME:
        assert metrics[key] == pytest.approx(expected[key], abs=1e-10)
    require_close(tmp_path / "raw", tmp_path / "killed")


QUICK = (
    *("data=digits", "model.net.hidden=[16]", "batch_size=300", "max_epochs=3"),
    *("accelerator=cpu", "threads=1", "logger=none"),
)


@pytest.mark.slow
def test_resume_and_last_on_the_command_line(command: Command) -> None:
    """A run of one epoch, resumed in its folder to the second, and in a new folder to the third.

    The checkpoint before a damaged one is taken.
    """
    reference = command.train(*QUICK, "name=whole", "hydra.run.dir=whole")
    assert reference.status == 0, reference.err
    assert command.train(*QUICK, "max_epochs=1").status == 0
    [folder] = command.folder.glob("logs/train/*")
    (command.folder / "conf").mkdir()
    ended = command.train("max_epochs=2", "--config-dir", "conf", "resume=true")  # a flag, then earlier words
    assert f"resuming from {folder}/checkpoints/last.ckpt" in ended.out, ended.err
    assert [*command.folder.glob("logs/train/*")] == [folder], "no folder named by the clock is left beside it"
    assert metrics_in(folder)["epochs"] == 2
    ended = command.train(*QUICK, "ckpt_path=last")
    [other] = set(command.folder.glob("logs/train/*")) - {folder}
    alike(metrics_in(other), metrics_in(command.folder / "whole"))
    assert (other / RECORD).read_text() == (command.folder / "whole" / RECORD).read_text()
    last = folder / "checkpoints" / "last.ckpt"
    content = bytearray(last.read_bytes())
    content[len(content) // 2] ^= 1
    last.unlink()
    last.write_bytes(content)
    ended = command.train(*QUICK, "resume=true", f"hydra.run.dir={folder}")
    assert ended.status == 0, ended.err
    assert ended.err == f"{last}: damaged; resuming from {last.with_name('previous.ckpt')}\n", "once"
    assert metrics_in(folder)["epochs"] == 3


@pytest.mark.slow
def test_curves_of_a_resumed_run_are_complete(make_plan: MakePlan, tmp_path: Path) -> None:
    """Killed two steps after a checkpoint: TensorBoard shows each point once; the first has fewer steps."""
    plan = make_plan(
        *DROPS, *MOMENTUM, *DDP, "checkpoint.every_n_steps=4", "log_every_n_steps=3", "logger=tensorboard", "test=false"
    )
    curves = {}
    for name in ("whole", "killed"):
        run_plan = in_folder(plan, tmp_path / name)
        start(run_plan if name == "whole" else killed(run_plan, 6))
        events = events_of(tmp_path / name)
        curves[name] = [(event.step, event.value) for event in events.Scalars("train/loss_step")]
    assert [step for step, _ in curves["killed"]] == [step for step, _ in curves["whole"]] == [3, 6, 9, 12]
    assert [*map(curves["killed"].__getitem__, (0, 2, 3))] == [*map(curves["whole"].__getitem__, (0, 2, 3))]


@pytest.mark.slow
def test_sweep_resumes_unfinished_jobs(command: Command) -> None:
    """Of three jobs one is done, one has trained for an epoch of three, one has not begun."""
    sweep = ("-m", "seed=1,2,3", *QUICK, "hydra.sweep.dir=sweep")
    assert command.train(*sweep, "seed=1,2", "max_epochs=1").status == 0
    (command.folder / "sweep" / "1" / "metrics.json").unlink()
    assert command.train(*QUICK, "seed=1", "hydra.run.dir=sweep/0", "resume=true").status == 0
    before = (command.folder / "sweep" / "0" / "metrics.json").read_text()
    ended = command.train(*sweep, "resume=true")
    assert ended.status == 0, ended.err
    assert f"finished before: {command.folder / 'sweep' / '0'}" in ended.out
    assert "resuming from" in ended.out
    assert "sweep: 3 finished, 0 refused, 0 failed" in ended.out
    assert (command.folder / "sweep" / "0" / "metrics.json").read_text() == before
    assert command.train(*QUICK, "seed=2", "hydra.run.dir=alone").status == 0
    alike(metrics_in(command.folder / "sweep" / "1"), metrics_in(command.folder / "alone"))


def stopping(plan: Plan, context: RankContext) -> Metrics:
    """Run a plan that is to stop after batch $STOP_AFTER."""
    try:
        run(plan, replace(context, stop=StopAfter(int(os.environ["STOP_AFTER"]))))
    except TrainingInterrupted as stopped:
        return {"stopped": stopped.args[0]}
    return {}


STOPS = ((5, 1), (7, 3))
"""Batches, and the steps that are complete by then."""


@pytest.mark.slow
def test_stopped_within_an_accumulation(make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Batches 3 + 3 + 1 an epoch: each rank's gradients, sums and ids are carried over bit for bit."""
    plan = make_plan(*DROPS, *MOMENTUM, *DDP, "accumulate_grad_batches=3", "accelerator=cpu")
    expected = start(in_folder(plan, tmp_path / "whole"))
    assert (plan.steps.epoch_batches, expected["steps"]) == (7, 6)
    for batch, steps in STOPS:
        stopped = in_folder(plan, tmp_path / f"stopped-after-{batch}")
        monkeypatch.setenv("STOP_AFTER", str(batch))
        assert on_ranks(stopped, stopping) == {"stopped": steps}
        last = torch.load(tmp_path / f"stopped-after-{batch}" / "checkpoints" / "last.ckpt", weights_only=True)
        assert all(bool(rank["gradients"]) == (batch % 7 % 3 > 0) for rank in last[SECTION]["ranks"])
        alike(start(going_on_with(stopped)), expected)
        assert record(stopped) == (tmp_path / "whole" / RECORD).read_text()


@pytest.mark.slow
def test_killed_in_the_test(make_plan: MakePlan, tmp_path: Path) -> None:
    """After two validations, of two linear layers each: the results of training are kept."""
    plan = make_plan(*DROPS, *MOMENTUM, *DDP, "accelerator=cpu")
    reference, broken = in_folder(plan, tmp_path / "whole"), in_folder(plan, tmp_path / "broken")
    expected = start(reference)
    with pytest.raises(RankFailed, match="SIGKILL"):
        start(broken, "kill@1:validation:5")
    alike(start(going_on_with(broken)), expected)
    assert record(broken) == record(reference)
