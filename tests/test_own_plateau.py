"""What a ReduceLROnPlateau of a LightningModule monitors: named where it is missing, alike in both engines."""

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

from lockstep.config_error import ConfigError
from lockstep.schemas.engine import ENGINES
from lockstep.session.schedules import require_monitors
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


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("given", "world", "sentence"),
    [((), SINGLE, NOTHING), (("+model.monitor=val_acc",), DDP, UNKNOWN)],
)
def test_what_it_monitors_is_there(
    given: tuple[str, ...], world: tuple[str, ...], sentence: str, engine: str, make_own: MakeOwn
) -> None:
    plan = make_own(*JOB, *given, *world, f"engine={engine}")
    with pytest.raises(ConfigError) as refused:
        trained(plan)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("engine", ENGINES)
def test_of_a_step_only_what_is_logged_on_it(engine: str, make_own: MakeOwn) -> None:
    job = (*JOB, *SINGLE, f"engine={engine}")
    with pytest.raises(ConfigError, match=r"^model=Plateaued: its ReduceLROnPlateau monitors val_loss, which it does"):
        trained(make_own(*job, "+model.monitor=val_loss", "+model.interval=step"))


@pytest.mark.parametrize(
    ("made", "fits"),
    [
        (OPTIMIZER, True),
        (None, True),
        (([OPTIMIZER], [STEPS]), True),
        (([OPTIMIZER], [PLATEAU]), False),
        (([OPTIMIZER], [{"scheduler": PLATEAU, "monitor": "a"}]), True),
        ({"optimizer": OPTIMIZER, "lr_scheduler": PLATEAU}, False),
        ({"optimizer": OPTIMIZER, "lr_scheduler": PLATEAU, "monitor": "a"}, True),
        ({"optimizer": OPTIMIZER, "lr_scheduler": {"scheduler": PLATEAU}, "monitor": "a"}, False),
        ({"optimizer": OPTIMIZER, "lr_scheduler": {"scheduler": STEPS, "reduce_on_plateau": True}}, False),
        ([{"optimizer": OPTIMIZER, "lr_scheduler": {"scheduler": PLATEAU, "monitor": "a"}}], True),
    ],
)
def test_in_every_form(made: object, fits: bool) -> None:
    if fits:
        require_monitors("Net", made)
    else:
        with pytest.raises(ConfigError, match="model=Net: its ReduceLROnPlateau monitors nothing; write in its"):
            require_monitors("Net", made)
