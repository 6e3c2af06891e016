"""What `configure_optimizers` of the modules returns: an optimizer, and the schedule of its rate."""

from functools import partial
from typing import Any

import pytest
import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch import nn
from torch.optim import SGD, lr_scheduler

from lockstep.models import Regressor
from tests.conftest import IN_PROCESS
from tests.test_models import Given, Slow, loader, trainer

pytestmark = IN_PROCESS


def configured(scheduler: Any, **options: Any) -> dict[str, Any]:
    """Return the schedule's part of `configure_optimizers` in a run of 4 epochs of 5 steps."""
    module = Regressor(Given(), partial(SGD, lr=0.5), scheduler, **options)
    stock = trainer(4)
    stock.strategy.connect(module)
    module.trainer, stock.state.fn = stock, TrainerFn.FITTING
    stock.fit_loop._data_source.instance = loader(torch.zeros(40, 1), torch.zeros(40, 1))
    return module.configure_optimizers()["lr_scheduler"]  # type: ignore[no-any-return]


def test_without_a_schedule_there_is_an_optimizer_of_what_is_trained() -> None:
    net = nn.Linear(2, 1)
    net.bias.requires_grad_(False)
    optimizer = Regressor(net, Slow).configure_optimizers()
    assert isinstance(optimizer, SGD)
    assert optimizer.param_groups[0]["params"] == [net.weight]


@pytest.mark.parametrize(
    ("options", "total"), [({}, 20), ({"total_steps": 30}, 30), ({"epochs": 5, "steps_per_epoch": 2}, 10)]
)
def test_a_schedule_of_the_whole_run_is_told_its_length(options: Any, total: int) -> None:
    config = configured(partial(lr_scheduler.OneCycleLR, max_lr=0.5, **options))
    assert (config["scheduler"].total_steps, config["interval"]) == (total, "step")


@pytest.mark.parametrize(("typed", "interval"), [(None, "epoch"), ("step", "step")])
def test_other_schedules_go_by_epochs_unless_told(typed: str | None, interval: str) -> None:
    assert configured(partial(lr_scheduler.StepLR, step_size=1), scheduler_interval=typed)["interval"] == interval


@pytest.mark.parametrize(
    ("monitor", "given", "mode"), [("val/loss", {}, "min"), ("val/acc", {}, "max"), ("val/acc", {"mode": "min"}, "min")]
)
def test_a_plateau_looks_at_the_monitor(monitor: str, given: Any, mode: str) -> None:
    config = configured(partial(lr_scheduler.ReduceLROnPlateau, **given), monitor=monitor)
    assert (config["monitor"], config["scheduler"].mode, config["interval"]) == (monitor, mode, "epoch")


def test_schedules_of_schedules_are_made_of_partials() -> None:
    parts: list[Any] = [
        partial(lr_scheduler.ConstantLR, factor=0.5, total_iters=2),
        partial(lr_scheduler.ExponentialLR, gamma=0.5),
    ]
    chained: Any = partial(lr_scheduler.ChainedScheduler, schedulers=parts)
    for make, expected in (
        (partial(lr_scheduler.SequentialLR, schedulers=parts, milestones=[2]), [0.25, 0.25, 0.5, 0.25]),
        (partial(lr_scheduler.ChainedScheduler, schedulers=[chained]), [0.25, 0.125, 0.125, 0.0625]),
    ):
        schedule, rates = configured(make)["scheduler"], []
        for _ in range(4):
            rates.append(schedule.optimizer.param_groups[0]["lr"])
            schedule.optimizer.step()
            schedule.step()
        assert rates == expected


@pytest.mark.parametrize(("monitor", "factors"), [("val/loss", 1), ("train/loss", 3)])
def test_a_plateau_steps_after_validations_alone(monitor: str, factors: int) -> None:
    """Two of four epochs validate: the first value is the best, and the second one halves the rate."""
    plateau = partial(lr_scheduler.ReduceLROnPlateau, patience=0, factor=0.5, eps=0.0)
    batches, stock = loader(torch.ones(8, 1), torch.zeros(8, 1)), trainer(4, check_val_every_n_epoch=2)
    stock.fit(Regressor(Given(), partial(SGD, lr=1e-30), plateau, monitor=monitor), batches, batches)
    assert stock.optimizers[0].param_groups[0]["lr"] == pytest.approx(1e-30 / 2**factors)
