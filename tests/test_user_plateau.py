"""The monitor of a LightningModule's ReduceLROnPlateau, and the forms of configure_optimizers."""

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

from lockstep.config_error import ConfigError
from lockstep.session.schedules import configured
from tests.conftest import MakeUserPlan
from tests.test_user_module import SINGLE, trained

JOB = ("model=regressor", "model._target_=strange_steps.Plateaued", "data=stream")
OPTIMIZER = SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
PLATEAU, STEPS = ReduceLROnPlateau(OPTIMIZER), StepLR(OPTIMIZER, 1)


@pytest.mark.parametrize(
    ("monitor", "interval", "message"),
    [
        ("val_acc", "epoch", r"^model=Plateaued: its ReduceLROnPlateau monitors val_acc, .* one of train/loss, val_l"),
        ("val_loss", "step", r"^model=Plateaued: its ReduceLROnPlateau monitors val_loss, which it does not log"),
    ],
    ids=["epoch", "step"],
)
def test_a_monitor_that_nothing_logs_is_named(
    monitor: str, interval: str, message: str, make_user_plan: MakeUserPlan
) -> None:
    """A step knows only what is logged on it."""
    with pytest.raises(ConfigError, match=message):
        trained(make_user_plan(*JOB, *SINGLE, "engine=raw", f"+model.monitor={monitor}", f"+model.interval={interval}"))


@pytest.mark.parametrize(
    ("returned", "monitors"),
    [
        (OPTIMIZER, []),
        ([OPTIMIZER], []),
        (([OPTIMIZER], [STEPS]), []),
        (([OPTIMIZER], [PLATEAU]), [None]),
        (([OPTIMIZER], [{"scheduler": PLATEAU, "monitor": "a"}]), ["a"]),
        ({"optimizer": OPTIMIZER, "lr_scheduler": PLATEAU}, [None]),
        ({"optimizer": OPTIMIZER, "lr_scheduler": PLATEAU, "monitor": "a"}, ["a"]),
        ({"optimizer": OPTIMIZER, "lr_scheduler": {"scheduler": PLATEAU}, "monitor": "a"}, [None]),
        ({"optimizer": OPTIMIZER, "lr_scheduler": {"scheduler": STEPS, "reduce_on_plateau": True}}, [None]),
        ([{"optimizer": OPTIMIZER, "lr_scheduler": {"scheduler": PLATEAU, "monitor": "a"}}], ["a"]),
    ],
)
def test_every_form_of_configure_optimizers(returned: object, monitors: list[str | None]) -> None:
    optimizers, schedules = configured(returned)
    assert optimizers == [OPTIMIZER]
    assert [schedule.monitor for schedule in schedules if schedule.reduce_on_plateau] == monitors


def test_other_forms_of_configure_optimizers_are_rejected() -> None:
    assert configured(None) == ([], [])
    with pytest.raises(ValueError, match="returns a str, and not optimizers"):
        configured("adam")
