"""The record of a run: its lines, compared with values computed by hand."""

import math
from pathlib import Path

import torch
from torch import nn

from lockstep.runs.record import StepRecorder
from lockstep.runs.record.fingerprint import digest
from lockstep.runs.record.step_lines import BatchStats, id_digests, step_lines
from lockstep.strategies.parallel.tensor_layout import gradient_norms
from tests.comparing import lines
from tests.conftest import MakePlan


def record_step(recorder: StepRecorder, lr: float) -> None:
    """Record the gradients of an optimizer step."""
    recorder.step(lr, gradient_norms([*recorder.net.parameters()]))


def net_with_gradients(*gradients: float) -> nn.Module:
    net = nn.Linear(1, 1)
    for parameter, gradient in zip(net.parameters(), gradients, strict=True):
        parameter.grad = torch.full_like(parameter, gradient)
    return net


def stats(loss: float, count: int) -> BatchStats:
    return loss, count, 0.0


def test_each_optimizer_step_has_a_line(make_plan: MakePlan, tmp_path: Path) -> None:
    """Three batches, two a step: steps of 3 + 3 and of 1 samples. The norm of (3, 4) is 5."""
    plan = make_plan("accumulate_grad_batches=2", "batch_size=3", "accelerator=cpu")
    recorder = StepRecorder(plan, 0, net_with_gradients(3.0, 4.0))
    recorder.batch(stats(0.1, 3), torch.tensor([4, 2, 0]))
    recorder.batch(stats(0.2, 3), torch.tensor([1, 5, 3]))
    record_step(recorder, 0.1 + 0.2)
    recorder.batch(stats(7.0, 1), torch.tensor([6]))
    record_step(recorder, 0.5)
    recorder.end_epoch(epoch=3, last_step=10)
    first, second = lines(tmp_path, "step")
    assert first.pop("ids") != second.pop("ids")
    common = {"epoch": 3, "grad_norm": 5.0, "grad_norm_spread": 0.0}
    assert first == {**common, "step": 9, "samples": 6, "lr": 0.1 + 0.2, "loss_sum": 0.1 + 0.2}
    assert second == {**common, "step": 10, "samples": 1, "lr": 0.5, "loss_sum": 7.0}


def test_spread_shows_ranks_that_diverge() -> None:
    """Three ranks, the second diverges: norms 1, 1; 1, 3; NaN, NaN; NaN, 3."""
    norms = [[1.0, 1.0, math.nan, math.nan], [1.0, 3.0, math.nan, 3.0], [1.0, 1.0, math.nan, 1.0]]
    same = {"loss_sum": [0.0] * 4, "samples": [1.0] * 4, "weight": [1.0] * 4, "ids": [0] * 4}
    same |= {"logged": [{}] * 4, "fingerprints": {}}
    ranks = [{**same, "grad_norm": norm} for norm in norms]
    spread = [line["step"]["grad_norm_spread"] for line in step_lines(ranks, [0.1] * 4, 1, 4)]
    assert spread[:3] == [0.0, 2.0, 0.0]
    assert math.isnan(float(spread[3]))


def test_logged_values_are_reduced_over_the_ranks_with_a_weight() -> None:
    """A mean weighs ranks; a rank without samples does not count."""
    names = {"loss": "mean", "seen": "sum", "low": "min", "high": "max"}
    logged = [{name: (total, weight, how) for name, how in names.items()} for total, weight in ((3, 1), (5, 3), (9, 0))]
    same = {"loss_sum": [0.0], "samples": [1.0], "weight": [1.0], "ids": [0], "grad_norm": [1.0], "fingerprints": {}}
    [line] = step_lines([{**same, "logged": [{"logged": values}]} for values in logged], [0.1], 1, 1)
    assert line["step"]["logged"] == {"loss": 2.0, "seen": 8, "low": 3, "high": 5}


def ids_of(*batches: list[int], rank: int = 0, world: int = 1) -> list[int]:
    tensors = [torch.tensor(batch, dtype=torch.int64) for batch in batches]
    digests: list[int] = id_digests(tensors, 0, 4, rank, world).tolist()
    return digests


def test_ids_show_which_sample_was_at_which_position() -> None:
    order = ids_of([7, 1, 3, 5], [0, 2, 6])
    assert order == ids_of([7, 1, 3, 5], [0, 2, 6])
    swapped_inside = ids_of([1, 7, 3, 5], [0, 2, 6])
    assert (order[0] != swapped_inside[0], order[1]) == (True, swapped_inside[1])
    swapped_across = ids_of([0, 1, 3, 5], [7, 2, 6])
    assert [a != b for a, b in zip(order, swapped_across, strict=True)] == [True, True]


def test_ids_add_up_over_ranks() -> None:
    """Batch [7 1 3 5], then the ragged [0 2 6]: on two ranks, and on four of which one has no sample."""
    expected = ids_of([7, 1, 3, 5], [0, 2, 6])
    halves = [ids_of([7, 3], [0, 6], rank=0, world=2), ids_of([1, 5], [2], rank=1, world=2)]
    quarters = [
        ids_of([first], second, rank=rank, world=4)
        for rank, (first, second) in enumerate([(7, [0]), (1, [2]), (3, [6]), (5, [])])
    ]
    for ranks in (halves, quarters):
        assert [sum(digests) % 2**64 for digests in zip(*ranks, strict=True)] == [value % 2**64 for value in expected]


def test_lines_of_run_validation_and_tensors(make_plan: MakePlan, tmp_path: Path) -> None:
    plan = make_plan("accelerator=cpu", "seed=7")
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    (tmp_path / "record.jsonl").write_text("what an earlier run left\n")
    StepRecorder(plan, 1, net).end()  # another rank writes nothing
    recorder = StepRecorder(plan, 0, net)
    recorder.validation(1, {"val/loss": 0.1 + 0.2})
    recorder.end()
    assert lines(tmp_path, "run") == [{**plan.summary(), "dropout_rng": "none", "per_rank_buffers": False}]
    assert lines(tmp_path, "validation") == [{"epoch": 1, "val/loss": 0.1 + 0.2}]
    tensors = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    assert lines(tmp_path, "tensor") == [
        {"name": name, "digest": digest({name: tensor})} for name, tensor in tensors.items()
    ]
