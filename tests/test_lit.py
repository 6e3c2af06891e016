"""The Lightning engine in this process: exact evaluation, curves, checkpoints."""

from pathlib import Path

import pytest
import torch
from torch import nn

from lockstep import data
from lockstep.lit import run
from lockstep.record.digest import digest
from lockstep.session.task import create_net
from tests.conftest import MakePlan, events_of
from tests.rank_helpers import ALONE

pytestmark = [
    pytest.mark.usefixtures("process_as_it_was"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]


def test_metrics_are_those_of_the_checkpoint(make_plan: MakePlan) -> None:
    plan = make_plan("max_epochs=2", "accelerator=cpu", "data.val_size=179")  # odd: a ragged evaluation batch
    metrics = run(plan, ALONE)
    checkpoints = Path(plan.run_dir) / "checkpoints"
    assert sorted(path.name for path in checkpoints.iterdir()) == ["best.ckpt", "last.ckpt", "previous.ckpt"]
    last = torch.load(checkpoints / "last.ckpt", weights_only=True)["state_dict"]
    assert metrics["digest"] == digest(last)
    tensors = data.load(plan.data)
    net = create_net(plan, tensors)
    net.load_state_dict({key.removeprefix("net."): value for key, value in last.items()})
    for stage, split in (("val", tensors.val), ("test", tensors.test)):
        inputs, targets = split.as_float(split[torch.arange(len(split))], torch.float32)
        with torch.no_grad():
            outputs = net(inputs)
        assert metrics[f"{stage}/acc"] == (outputs.argmax(1) == targets).double().mean().item()
        loss = nn.functional.cross_entropy(outputs, targets).item()
        assert metrics[f"{stage}/loss"] == pytest.approx(loss, rel=1e-5)
    assert (metrics["epochs"], metrics["steps"]) == (2, 40)


def test_the_curve_of_the_loss_is_the_mean_since_the_last_point(make_plan: MakePlan) -> None:
    plan = make_plan("max_epochs=1", "log_every_n_steps=20", "optimizer.lr=1e-12", "accelerator=cpu", "test=false")
    metrics = run(plan, ALONE)
    events = events_of(Path(plan.run_dir))
    [point] = events.Scalars("train/loss")  # one point, over the whole epoch, ragged batch included
    assert point.value == pytest.approx(metrics["train/loss"], rel=1e-6)


@pytest.mark.parametrize("scheduler", ["onecycle", "warmup_linear"])
def test_schedules_can_be_resumed_for_longer(make_plan: MakePlan, tmp_path: Path, scheduler: str) -> None:
    common = (f"scheduler={scheduler}", "accelerator=cpu", "logger=csv", "test=false")
    warm = "scheduler.warmup_steps=10" if scheduler == "warmup_linear" else "scheduler.warmup_fraction=0.5"
    first = run(make_plan("max_epochs=2", warm, *common), ALONE)
    half = tmp_path / "checkpoints" / "last.ckpt"
    resumed = run(make_plan("max_epochs=4", warm, f"ckpt_path={half}", *common), ALONE)
    assert (first["steps"], resumed["steps"]) == (40, 80)
    speed = 2 * 1257 / resumed["train_seconds"]  # type: ignore[operator]
    assert resumed["samples_per_second"] == pytest.approx(speed), "two epochs were trained in this run"
