"""The checkpoint manager: when a checkpoint is due, which epoch is the best, and the state of every generator."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from lockstep.plan.plan import Plan
from lockstep.runs.checkpoint.content import SECTION, Progress, before_fit_end, state_of_rank
from lockstep.runs.checkpoint.saving import CheckpointManager, replace_weights, save
from lockstep.runs.record import StepRecorder
from tests.conftest import MakePlan

NET = nn.Linear(1, 1)


def manager_of(plan: Plan) -> CheckpointManager:
    return CheckpointManager(plan, 0, StepRecorder(plan, 0, NET))


def best_so_far(manager: CheckpointManager, metrics: dict[str, float], epoch: int = 1) -> bool:
    manager.update_best(metrics, epoch)
    return manager.best_yet


def test_checkpoint_is_due_every_n_steps(make_plan: MakePlan) -> None:
    for every, due in (("null", []), ("3", [3, 6])):
        manager = manager_of(make_plan(f"checkpoint.every_n_steps={every}"))
        assert [step for step in range(1, 7) if manager.due(step)] == due


def test_best_is_the_first_of_equals_and_nan_is_worst(make_plan: MakePlan) -> None:
    accuracies = [float("nan"), 0.25, 0.5, 0.5, float("nan"), 0.25]
    manager = manager_of(make_plan("checkpoint.monitor=val/acc"))
    assert [best_so_far(manager, {"val/acc": accuracy}) for accuracy in accuracies] == [True] * 3 + [False] * 3
    manager = manager_of(make_plan("checkpoint.monitor=val/loss"))
    losses = (3.0, 4.0, 2.0, 2.0 + 1e-12)
    assert [best_so_far(manager, {"val/loss": loss}) for loss in losses] == [True, False, True, False]


def test_best_of_a_resumed_run(make_plan: MakePlan) -> None:
    """By the same metric, in the same folder, where best.ckpt lies."""
    plan = make_plan("accelerator=cpu", "checkpoint.monitor=val/acc")
    before = manager_of(plan)
    before.update_best({"val/acc": 0.9}, epoch=4)
    saved = before.extra_state(Progress(1, 0, 20), {"val/acc": 0.9}, {})[SECTION]
    for monitor, resume, better in (("val/acc", True, False), ("val/acc", False, True), ("val/f1", True, True)):
        after = manager_of(replace(plan, checkpoint=replace(plan.checkpoint, monitor=monitor), resume=resume))
        after.restore(saved)
        assert best_so_far(after, {"val/acc": 0.8, "val/f1": 0.8}) == better
        assert after.best_metrics["best_epoch"] == (1 if better else 4)
        assert best_so_far(after, {"val/acc": 0.95, "val/f1": 0.95}, epoch=7)


def test_undamaged_checkpoint_replaces_the_damaged(make_plan: MakePlan, tmp_path: Path) -> None:
    """Else the first save would rotate the damaged one to previous.ckpt."""
    content = manager_of(make_plan("accelerator=cpu")).extra_state(Progress(), {}, {})[SECTION]
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "previous.ckpt").write_text("whole")
    (folder / "last.ckpt").write_text("torn")
    (tmp_path / "link").symlink_to(folder)
    plan = replace(make_plan("accelerator=cpu"), ckpt_path=str(tmp_path / "link" / "previous.ckpt"), resume=True)
    manager_of(plan).restore(content)
    assert (folder / "last.ckpt").read_text() == "whole"


def draws() -> list[float]:
    return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand(1).item()]


def test_every_generator_is_restored(make_plan: MakePlan, tmp_path: Path) -> None:
    """Through a file, in float64, with half of a pair of normal numbers still to come."""
    plan, saved_sums = make_plan("accelerator=cpu"), {"epoch": torch.tensor([0.1, 2.0, 3.0], dtype=torch.float64)}
    random.seed(1), np.random.seed(2), torch.manual_seed(3)
    draws()
    save(manager_of(plan).extra_state(Progress(0, 3, 3), {"val/acc": 0.1}, saved_sums), tmp_path / "a.ckpt")
    expected = draws()
    content = torch.load(tmp_path / "a.ckpt", weights_only=True)[SECTION]
    assert draws() != expected
    sums = manager_of(plan).restore(content)
    assert draws() == expected
    assert sums["epoch"].tolist() == [0.1, 2.0, 3.0]
    assert (content["position"], content["results"]) == (vars(Progress(0, 3, 3)), {"val/acc": 0.1})


def test_rank_0_takes_all_sums_in_another_world() -> None:
    """Each rank takes the mean gradient; of three ranks one had no sample in its share."""
    gradients = [{"w": torch.tensor([3.0, 6.0])}, {}, {"w": torch.ones(2)}]
    ranks = [
        {"random": {"torch": 1}, "sums": {"epoch": torch.tensor([1.0 + rank, 2.0])}, "gradients": gradients[rank]}
        for rank in range(3)
    ]
    states = [state_of_rank({"ranks": ranks}, rank, 2) for rank in range(2)]
    assert [state["sums"]["epoch"].tolist() for state in states] == [[6.0, 6.0], [0.0, 0.0]]
    for state in states:
        assert not state["random"]
        assert state["gradients"]["w"].tolist() == pytest.approx([4 / 3, 7 / 3])
    assert state_of_rank({"ranks": ranks}, 2, 3) == ranks[2]


def test_the_weights_that_fit_leaves_are_saved_beside_those_that_were_trained(tmp_path: Path) -> None:
    """And best.ckpt stays: its value was measured before. The same weights are not saved again."""
    path = tmp_path / "last.ckpt"
    torch.save({"state_dict": {"w": torch.zeros(1), "kept": 3}, SECTION: {"best_yet": True}}, path)
    for _ in range(2):
        replace_weights(path, {"w": torch.ones(1), "left_out": torch.ones(1)})
    checkpoint = torch.load(path, weights_only=True)
    assert checkpoint["state_dict"] == {"w": torch.ones(1), "kept": 3}
    assert before_fit_end(checkpoint)["state_dict"] == {"w": torch.zeros(1), "kept": 3}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["last.ckpt", "previous.ckpt"]
    assert "state_dict" not in torch.load(tmp_path / "previous.ckpt", weights_only=True)[SECTION]
