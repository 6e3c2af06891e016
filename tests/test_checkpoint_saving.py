"""Writing a checkpoint, and the state of each rank in it."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from lockstep.base.random_state import random_state, restore_random_state
from lockstep.runs.checkpoint.content import SECTION, before_fit_end, state_of_rank
from lockstep.runs.checkpoint.saving import replace_weights, save


def draws() -> list[float]:
    return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand(1).item()]


def test_every_generator_is_restored(tmp_path: Path) -> None:
    """Through a file, in float64, with half of a pair of normal numbers still to come."""
    random.seed(1), np.random.seed(2), torch.manual_seed(3)
    draws()
    sums = torch.tensor([0.1, 2.0, 3.0], dtype=torch.float64)
    save({SECTION: {"random": random_state([]), "sums": sums}}, tmp_path / "a.ckpt")
    expected = draws()
    content = torch.load(tmp_path / "a.ckpt", weights_only=True)[SECTION]
    assert draws() != expected
    restore_random_state(content["random"], [])
    assert draws() == expected
    assert content["sums"].tolist() == [0.1, 2.0, 3.0]


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
