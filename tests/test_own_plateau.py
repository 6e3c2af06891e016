"""What a ReduceLROnPlateau of a LightningModule monitors: named where it is missing, alike in both engines."""

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

from lockstep.config_error import ConfigError
from lockstep.schemas.engine import ENGINES
from lockstep.session.schedules import configured
from tests.conftest import MakeOwn
from tests.test_own_module import DDP, SINGLE, trained

JOB = ("model=regressor", "model._target_=strange_modules.Plateaued", "data=stream")
OPTIMIZER = SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
PLATEAU, STEPS = ReduceLROnPlateau(OPTIMIZER), StepLR(OPTIMIZER, 1)
NOTHING = (
    "model=Plateaued: its ReduceLROnPlateau monitors nothing; write in its configure_optimizers "
    '"monitor": NAME beside "scheduler", a NAME that it logs.'
)
UNKNOWN = (
    "model=Plateaued: its ReduceLROnPlateau monitors val_acc, which it does not log; write one of train/loss, val_loss."
)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("engine=raw", *SINGLE), NOTHING),
        (("engine=raw", "+model.monitor=val_acc", *SINGLE), UNKNOWN),
        (("engine=lightning", "+model.monitor=val_acc", *DDP), UNKNOWN),
    ],
)
def test_a_missing_monitor_is_named(overrides: tuple[str, ...], message: str, make_own: MakeOwn) -> None:
    with pytest.raises(ConfigError) as error:
        trained(make_own(*JOB, *overrides))
    assert str(error.value) == message


def test_lightning_rejects_a_plateau_without_a_monitor(make_own: MakeOwn) -> None:
    with pytest.raises(Exception, match="must include a monitor"):
        trained(make_own(*JOB, *SINGLE, "engine=lightning"))


@pytest.mark.parametrize("engine", ENGINES)
def test_of_a_step_only_what_is_logged_on_it(engine: str, make_own: MakeOwn) -> None:
    job = (*JOB, *SINGLE, f"engine={engine}")
    with pytest.raises(ConfigError, match=r"^model=Plateaued: its ReduceLROnPlateau monitors val_loss, which it does"):
        trained(make_own(*job, "+model.monitor=val_loss", "+model.interval=step"))


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
