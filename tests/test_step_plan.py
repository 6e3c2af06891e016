"""Counts of batches and optimizer steps, computed by hand."""

import pytest

from tests.conftest import MakePlan


def test_total_steps(make_plan: MakePlan) -> None:
    # 1,257 digits in batches of 64: 19 full and one of 41
    assert make_plan("max_epochs=3").steps.total_steps == 3 * 20
    assert make_plan("max_epochs=3", "drop_last=true").steps.total_steps == 3 * 19
    assert make_plan("max_epochs=3", "accumulate_grad_batches=3").steps.total_steps == 3 * 7


@pytest.mark.parametrize(
    ("overrides", "after"),
    [
        (("trainer.check_val_every_n_epoch=2",), [False, True, False, True]),
        (("trainer.val_check_interval=6",), [False, False, False, False]),
        (("trainer.check_val_every_n_epoch=null", "trainer.val_check_interval=40"), [False, True, False, True]),
    ],
)
def test_validation_after_an_epoch(overrides: tuple[str, ...], after: list[bool], make_plan: MakePlan) -> None:
    steps = make_plan("max_epochs=4", *overrides).steps
    due = [steps.is_validation_due(epoch, steps.epoch_batches, last=True) for epoch in range(1, 5)]
    assert due == after


def test_a_validation_within_an_epoch(make_plan: MakePlan) -> None:
    steps = make_plan("trainer.val_check_interval=0.25", "trainer.check_val_every_n_epoch=2").steps
    assert [batch for batch in range(1, 21) if steps.is_validation_due(2, batch, last=batch == 20)] == [5, 10, 15, 20]
    assert not [batch for batch in range(1, 21) if steps.is_validation_due(1, batch, last=batch == 20)]


def test_training_ends_at_the_first_bound(make_plan: MakePlan) -> None:
    steps = make_plan("max_epochs=2", "trainer.max_steps=30").steps
    assert [steps.is_finished(*done) for done in ((1, 29), (1, 30), (2, 29))] == [False, True, True]
    assert steps.total_steps == 30
