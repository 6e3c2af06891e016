"""The curves of a run on several ranks are of all their samples, whichever engine draws them."""

import json
from collections.abc import Callable

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lockstep import launch
from lockstep.plan import Plan
from lockstep.schemas.engine import ENGINES

OWN = ("data=digits", "model=mlp", "model.hidden=[8]", "batch_size=200", "max_epochs=2", "test=false", "threads=1")


@pytest.mark.parametrize("engine", ["raw", "lightning"])
def test_a_point_is_of_the_samples_of_all_ranks(engine: str, make_plan: Callable[..., Plan]) -> None:
    """Seven steps an epoch, the last ragged. The loss by the record; samples/s by the seconds that training took."""
    world = ("strategy=ddp", "devices=2", "accelerator=cpu", "logger=tensorboard", "log_every_n_steps=7")
    plan = make_plan(*OWN, *world, f"engine={engine}")
    metrics = launch.start(plan, ENGINES[engine])
    events = EventAccumulator(plan.run_dir + "/tensorboard").Reload()
    with open(plan.run_dir + "/record.jsonl") as record:  # noqa: PTH123
        steps = [line["step"] for line in map(json.loads, record) if "step" in line]
    halves = [steps[:7], steps[7:]]
    losses = [sum(step["loss_sum"] for step in half) / sum(step["samples"] for step in half) for half in halves]
    curve = events.Scalars("train/loss")
    assert [point.step for point in curve] == [7, 14]
    assert [point.value for point in curve] == pytest.approx(losses, abs=1e-5)
    speeds = [point.value for point in events.Scalars("samples_per_second")]
    seconds = sum(1257 / speed for speed in speeds)
    assert 0.6 < seconds / metrics["train_seconds"] < 1.4, "half the samples would have taken twice as long"
