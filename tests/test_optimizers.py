"""Schedules of a run's length by hand and by torch's; weight decay by groups; Adam of all parameters at once."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR

from lockstep.config_error import ConfigError
from lockstep.optimizers import adamw_groups, update_together
from lockstep.schedulers import one_cycle, warmup_linear


def rates_of(create: Callable[[Any], LRScheduler], steps: int) -> list[float]:
    """Return the learning rate of each step of an optimizer with lr=1."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, rates = create(optimizer), []
    for step in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if step < steps - 1:
            scheduler.step()
    return rates


def test_warm_up_and_decay_by_hand() -> None:
    rates = rates_of(lambda optimizer: warmup_linear(optimizer, total_steps=10, warmup_steps=4), 10)
    assert rates == [1 / 4, 2 / 4, 3 / 4, 4 / 4, 6 / 6, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]
    rates = rates_of(lambda optimizer: warmup_linear(optimizer, total_steps=4, warmup_steps=0), 4)
    assert rates == [1, 3 / 4, 2 / 4, 1 / 4]


@pytest.mark.parametrize(("fraction", "total"), [(0.3, 20), (0.5, 101), (0.9, 40), (0.05, 200)])
def test_one_cycle_is_torchs(fraction: float, total: int) -> None:
    options: dict[str, Any] = {"max_lr": 1.0, "pct_start": fraction, "cycle_momentum": False}
    torchs = rates_of(lambda optimizer: OneCycleLR(optimizer, total_steps=total, **options), total)
    ours = rates_of(lambda optimizer: one_cycle(optimizer, total, warmup_fraction=fraction), total)
    assert ours == pytest.approx(torchs, abs=1e-12)


@pytest.mark.parametrize("total", [1, 2, 3, 10])
@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5])
def test_one_cycle_of_few_steps_stays_a_rate(fraction: float, total: int) -> None:
    """Beyond the end, too: a resumed run may have more steps."""
    assert all(0 < rate <= 1 for rate in rates_of(lambda optimizer: one_cycle(optimizer, total, fraction), total + 5))


@pytest.mark.parametrize(
    ("create", "sentence"),
    [
        (lambda sgd: warmup_linear(sgd, 20, 20), "scheduler.warmup_steps=20: the run has 20 steps; write scheduler.wa"),
        (lambda sgd: warmup_linear(sgd, 1, 5), "scheduler.warmup_steps=5: the run has 1 step; write scheduler.warmup_"),
        (lambda sgd: warmup_linear(sgd, 20, -1), "scheduler.warmup_steps=-1: "),
        (lambda sgd: one_cycle(sgd, 20, 1.0), "scheduler.warmup_fraction=1.0: it must be at least 0 and below 1; writ"),
        (lambda sgd: one_cycle(sgd, float("inf")), "scheduler=onecycle: the length of an epoch of the data is unknown"),  # type: ignore[arg-type]
        (lambda sgd: warmup_linear(sgd, 0), "scheduler=warmup_linear: the length of an epoch of the data is unknown; "),
    ],
)
def test_a_schedule_that_does_not_fit_the_run_is_refused(create: Callable[[Any], LRScheduler], sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        rates_of(create, 1)


def test_biases_and_norm_layers_are_spared() -> None:
    """Gradients are 0, so decay alone can move a parameter: by hand, the first step is 1 - 0.01·0.1."""
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 2))
    optimizer = adamw_groups(net.parameters(), lr=0.01, weight_decay=0.1)
    for parameter in net.parameters():
        nn.init.ones_(parameter)
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    moved = {key for key, parameter in net.named_parameters() if (parameter != 1).any()}
    assert moved == {"0.weight", "2.weight"}
    assert net.state_dict()["0.weight"][0, 0, 0, 0].item() == pytest.approx(1 - 0.01 * 0.1)


def test_spared_parameters_are_trained() -> None:
    """Each that requires gradients is in one group, and goes down its gradient."""
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 2))
    net[0].weight.requires_grad_(False)
    optimizer = adamw_groups(net.parameters(), lr=0.01, weight_decay=0.1)
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    grouped = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    assert sorted(grouped) == sorted(map(id, trained))
    before = [parameter.detach().clone() for parameter in trained]
    for parameter in trained:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert all((after < start).all() for after, start in zip(trained, before, strict=True))


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_adam_updates_all_parameters_together_to_the_same_bits(kind: type[torch.optim.Adam]) -> None:
    ends = []
    for prepare in (lambda optimizer: optimizer, update_together):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(7, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
        optimizer = prepare(kind(net.parameters(), lr=0.01, weight_decay=0.1, amsgrad=True))
        for _ in range(20):
            for parameter in net.parameters():
                parameter.grad = torch.randn_like(parameter)
            optimizer.step()
        ends.append((torch.cat([parameter.flatten() for parameter in net.parameters()]), optimizer.param_groups[0]))
    (one_by_one, default), (together, group) = ends
    assert (default["foreach"], group["foreach"]) == (None, True)
    assert torch.equal(one_by_one, together)


def test_options_of_an_optimizer_stay() -> None:
    parameters = [nn.Parameter(torch.ones(2))]
    chosen = torch.optim.Adam(parameters, foreach=False)
    with_tensor = torch.optim.Adam(parameters, lr=torch.tensor(0.1))  # rejects foreach
    for optimizer in (chosen, with_tensor):
        assert not update_together(optimizer).param_groups[0]["foreach"]
