"""Options of `trainer`: valid values and counts of batches."""

import inspect
from dataclasses import fields

import lightning.pytorch as pl
import pytest

from lockstep.plan import schemas
from tests.conftest import MakePlan, require_refused

SMALL = ("data=digits", "model.net.hidden=[8]", "batch_size=60", "threads=1", "accelerator=cpu", "logger=none")


@pytest.mark.parametrize(
    ("words", "batches", "steps"),
    [
        # 1,257 samples in batches of 60: 20 full and one of 57
        ((), 21, 21),
        (("trainer.limit_train_batches=0.5",), 10, 10),
        (("trainer.limit_train_batches=7", "accumulate_grad_batches=3"), 7, 3),
        (("trainer.fast_dev_run=3",), 3, 3),
    ],
)
def test_counts_of_an_epoch(words: tuple[str, ...], batches: int, steps: int, make_plan: MakePlan) -> None:
    plan = make_plan(*SMALL, *words)
    assert (plan.steps.epoch_batches, plan.steps.steps_before(1)) == (batches, steps)
    assert plan.steps.total_steps == steps * plan.max_epochs
    assert make_plan(*SMALL, *words, "trainer.max_steps=1").steps.total_steps == 1


INVALID = {
    "limit_val_batches=0.01": "batches; write trainer.limit_val_batches=1, or 0 for no validation.",
    "limit_train_batches=1.5": "=1.5: a share is at most 1.0, a number of batches is an int; write",
    "check_val_every_n_epoch=null": "trainer.check_val_every_n_epoch=null: then trainer.val_check_interval counts the",
    "val_check_interval=22": "trainer.val_check_interval=22: an epoch has 21 batches; write trainer.v",
}


@pytest.mark.parametrize("words", INVALID)
def test_invalid_options(words: str, make_plan: MakePlan) -> None:
    require_refused(INVALID[words], make_plan, *SMALL, *f"trainer.{words}".split())


def test_other_arguments_of_lightnings_trainer_are_refused(make_plan: MakePlan) -> None:
    supported = {field.name for field in fields(schemas.Trainer)}
    others = [*inspect.signature(pl.Trainer.__init__).parameters.keys() - supported - {"self"}]
    assert len(others) > 20
    require_refused("=1: there is no such key", make_plan, *SMALL, f"+trainer.{min(others)}=1")
