"""The record of a run: what its lines say, worked out by hand."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lockstep.plan import Plan
from lockstep.record.digest import digest
from lockstep.record.recorder import Recorder
from lockstep.record.step_buffer import id_digests, step_lines
from lockstep.sums.running import BatchStats
from tests.conftest import MakePlan


def step(recorder: Recorder, lr: float) -> None:
    """Record the gradients of an optimizer step."""
    recorder.steps.step(lr, recorder.norms(recorder.parameters))


def net_with_gradients(*gradients: float) -> nn.Module:
    net = nn.Linear(1, 1)
    for parameter, gradient in zip(net.parameters(), gradients, strict=True):
        parameter.grad = torch.full_like(parameter, gradient)
    return net


def lines(plan: Plan, kind: str) -> list[dict[str, Any]]:
    found = map(json.loads, (Path(plan.run_dir) / "record.jsonl").read_text().splitlines())
    return [line[kind] for line in found if kind in line]


def stats(loss: float, count: int) -> BatchStats:
    return loss, count, 0.0


def test_a_line_for_each_optimizer_step(make_plan: MakePlan) -> None:
    """Three batches, two a step: steps of 3 + 3 and of 1 samples. The norm of (3, 4) is 5."""
    plan = make_plan("accumulate_grad_batches=2", "batch_size=3", "accelerator=cpu")
    recorder = Recorder(plan, 0, net_with_gradients(3.0, 4.0))
    recorder.batch(stats(0.1, 3), torch.tensor([4, 2, 0]))
    recorder.batch(stats(0.2, 3), torch.tensor([1, 5, 3]))
    step(recorder, 0.1 + 0.2)
    step(recorder, 0.5)
    recorder.batch(stats(7.0, 1), torch.tensor([6]))
    recorder.end_epoch(epoch=3, last_step=10)
    first, second = lines(plan, "step")
    assert first.pop("ids") != second.pop("ids")
    common = {"epoch": 3, "grad_norm": 5.0, "grad_norm_spread": 0.0}
    assert first == {**common, "step": 9, "samples": 6, "lr": 0.1 + 0.2, "loss_sum": 0.1 + 0.2}
    assert second == {**common, "step": 10, "samples": 1, "lr": 0.5, "loss_sum": 7.0}


def test_parameters_without_a_gradient_are_left_out(make_plan: MakePlan) -> None:
    """(3, 4), then (3, none): norms 5 and 3."""
    plan = make_plan("accelerator=cpu")
    net = net_with_gradients(3.0, 4.0)
    recorder = Recorder(plan, 0, net)
    for index in range(2):
        step(recorder, 0.1)
        recorder.batch(stats(1.0, 1), torch.tensor([index]))
        list(net.parameters())[1].grad = None
    recorder.end_epoch(1, 2)
    assert [line["grad_norm"] for line in lines(plan, "step")] == [5.0, 3.0]


def test_what_is_no_number_is_null(make_plan: MakePlan) -> None:
    plan = make_plan("accelerator=cpu", "detect_nan=false")
    recorder = Recorder(plan, 0, net_with_gradients(math.nan, 1.0))
    step(recorder, 0.1)
    recorder.batch(stats(math.inf, 2), torch.tensor([0, 1]))
    recorder.end_epoch(1, 1)
    [line] = lines(plan, "step")
    assert (line["loss_sum"], line["grad_norm"], line["samples"]) == (None, None, 2)


def test_ranks_that_part_are_told_also_when_a_norm_is_no_number() -> None:
    """Three ranks, whose middle one is off: norms 1, 1; 1, 3; NaN, NaN; NaN, 3, the third rank as the first."""
    norms = [[1.0, 1.0, math.nan, math.nan], [1.0, 3.0, math.nan, 3.0], [1.0, 1.0, math.nan, 1.0]]
    same = {"loss_sum": [0.0] * 4, "samples": [1.0] * 4, "ids": [0] * 4, "logged": [{}] * 4, "fingerprints": {}}
    parts = [{**same, "grad_norm": own} for own in norms]
    apart = [line["step"]["grad_norm_spread"] for line in step_lines(parts, [0.1] * 4, 1, 4)]
    assert apart[:3] == [0.0, 2.0, 0.0]
    assert math.isnan(float(apart[3]))


def ids_of(*batches: list[int], rank: int = 0, world: int = 1) -> list[int]:
    tensors = [torch.tensor(batch, dtype=torch.int64) for batch in batches]
    found: list[int] = id_digests(tensors, 0, 4, rank, world).tolist()
    return found


def test_ids_tell_which_sample_stood_where() -> None:
    order = ids_of([7, 1, 3, 5], [0, 2, 6])
    assert order == ids_of([7, 1, 3, 5], [0, 2, 6])
    swapped_inside = ids_of([1, 7, 3, 5], [0, 2, 6])
    assert (order[0] != swapped_inside[0], order[1]) == (True, swapped_inside[1])
    swapped_across = ids_of([0, 1, 3, 5], [7, 2, 6])
    assert [a != b for a, b in zip(order, swapped_across, strict=True)] == [True, True]


def test_ids_add_up_over_ranks() -> None:
    """Batch [7 1 3 5], then the ragged [0 2 6]: on two ranks, and on four of which one goes empty."""
    whole = ids_of([7, 1, 3, 5], [0, 2, 6])
    halves = [ids_of([7, 3], [0, 6], rank=0, world=2), ids_of([1, 5], [2], rank=1, world=2)]
    quarters = [
        ids_of([first], second, rank=rank, world=4)
        for rank, (first, second) in enumerate([(7, [0]), (1, [2]), (3, [6]), (5, [])])
    ]
    for parts in (halves, quarters):
        assert [sum(numbers) % 2**64 for numbers in zip(*parts, strict=True)] == [number % 2**64 for number in whole]


def test_heading_validation_and_tensors(make_plan: MakePlan) -> None:
    plan = make_plan("accelerator=cpu", "seed=7")
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    (Path(plan.run_dir) / "record.jsonl").write_text("what an earlier run left\n")
    recorder = Recorder(plan, 0, net)
    recorder.validation(1, {"val/loss": 0.1 + 0.2})
    recorder.end()
    assert lines(plan, "run") == [{**plan.summary(), "dropout_rng": "none", "per_rank_buffers": False}]
    assert lines(plan, "validation") == [{"epoch": 1, "val/loss": 0.1 + 0.2}]
    assert lines(plan, "tensor") == [
        {"name": name, "digest": digest({name: tensor})}
        for name, tensor in {**dict(net.named_parameters()), **dict(net.named_buffers())}.items()
    ]


def test_other_ranks_write_nothing(make_plan: MakePlan) -> None:
    plan = make_plan("accelerator=cpu")
    recorder = Recorder(plan, 1, net_with_gradients(0.0, 0.0))
    step(recorder, 0.1)
    recorder.batch(stats(1.0, 1), torch.tensor([0]))
    recorder.end_epoch(1, 1)
    recorder.end()
    assert not (Path(plan.run_dir) / "record.jsonl").exists()


@pytest.mark.parametrize("order", ["batch first", "step first"])
def test_an_engine_may_tell_of_batch_or_step_first(make_plan: MakePlan, order: str) -> None:
    plan = make_plan("accelerator=cpu")
    recorder = Recorder(plan, 0, net_with_gradients(3.0, 4.0))
    for index in range(3):
        if order == "step first":
            step(recorder, 0.1)
        recorder.batch(stats(index, 1), torch.tensor([index]))
        if order == "batch first":
            step(recorder, 0.1)
    recorder.end_epoch(1, 3)
    assert [(line["step"], line["loss_sum"]) for line in lines(plan, "step")] == [(1, 0.0), (2, 1.0), (3, 2.0)]
