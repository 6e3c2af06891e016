"""What a check compares of plain attributes, of the order of epochs, and how it makes a slow training smaller."""

from typing import Any

import pytest
import torch
from lightning import LightningModule
from torch import nn

from lockstep.check.causes import CAUSES
from lockstep.check.command import divisible
from lockstep.check.questions import epochs
from lockstep.check.sketches import hidden_state


def test_a_module_in_a_list_has_a_state() -> None:
    """As a teacher that the optimizer has not to see."""
    module: Any = LightningModule()
    module.teacher = [nn.Linear(2, 1)]
    before = hidden_state(module)
    assert hidden_state(module) == before
    with torch.no_grad():
        module.teacher[0].bias += 1
    changed = [name for name, values in hidden_state(module).items() if values != before[name]]
    assert changed == ["teacher[1]"]


@pytest.mark.parametrize(
    ("shuffles", "second", "is_apart"), [(True, "ab", True), (False, "ab", False), (True, "ba", False)]
)
def test_a_shuffled_order_is_another_in_each_epoch(shuffles: bool, second: str, is_apart: bool) -> None:
    steps = [{"epoch": epoch, "samples": [name]} for epoch, names in enumerate(("ab", second)) for name in names]
    answer = epochs(None, {"steps": steps, "facts": {"shuffles": shuffles}})  # type: ignore[arg-type]
    cause = answer.finding.cause if answer.finding else ""
    assert cause == CAUSES["set_epoch not called"]["cause"] * is_apart


def test_a_batch_is_divided_by_ranks_and_halves() -> None:
    assert [divisible(size, 6) for size in (64, 13.9, 3)] == [60, 12, 6]
