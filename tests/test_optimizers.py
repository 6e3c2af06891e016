from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

from lockstep.base.config_error import ConfigError
from lockstep.base.optimizers import update_together
from lockstep.models.optimizers import adamw_groups
from lockstep.models.schedulers import one_cycle, one_cycle_factor, warmup_linear, warmup_linear_factor
from lockstep.plan.targets.locate import create
from tests.conftest import MakePlan


def test_warm_up_and_decay_by_hand() -> None:
    factors = [warmup_linear_factor(step, warmup=4, total=10) for step in range(10)]
    assert factors == [1 / 4, 2 / 4, 3 / 4, 4 / 4, 6 / 6, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]
    assert [warmup_linear_factor(step, warmup=0, total=4) for step in range(4)] == [1, 3 / 4, 2 / 4, 1 / 4]


@pytest.mark.parametrize(("fraction", "total"), [(0.3, 20), (0.5, 101)])
def test_one_cycle_is_torchs(fraction: float, total: int) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    torchs = OneCycleLR(optimizer, max_lr=1.0, total_steps=total, pct_start=fraction, cycle_momentum=False)
    rates = []
    for _ in range(total):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if len(rates) < total:
            torchs.step()
    assert [one_cycle_factor(step, fraction, total) for step in range(total)] == pytest.approx(rates, abs=1e-12)


def test_one_cycle_of_few_steps_stays_a_rate() -> None:
    for fraction, total in ((0.0, 1), (0.5, 1), (0.1, 2), (0.5, 3)):
        assert all(0 < one_cycle_factor(step, fraction, total) <= 1 for step in range(total + 5))


@pytest.mark.parametrize(
    ("name", "by_hand"),
    # the first step moves by lr·g/(|g| + eps), with bias-corrected moments; AdamW also shrinks the weight by lr·decay
    [("adam", 1 - 0.01), ("adamw", 1 * (1 - 0.01 * 0.1) - 0.01), ("sgd", 1 - 0.01 * (1 + 0.1))],
)
def test_what_the_files_of_the_group_name(name: str, by_hand: float, make_plan: MakePlan) -> None:
    plan = make_plan(f"optimizer={name}", "optimizer.weight_decay=0.1", "optimizer.lr=0.01")
    weight = nn.Parameter(torch.ones((), dtype=torch.float64))
    weight.grad = torch.ones_like(weight)
    create("optimizer", plan.model.call["optimizer"])([weight]).step()
    assert weight.item() == pytest.approx(by_hand, abs=1e-9)


def test_biases_and_norm_layers_are_spared() -> None:
    """Gradients are 0, so decay alone can move a parameter: by hand, the first step is 1 - 0.01·0.1."""
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 2))
    optimizer = adamw_groups(net.parameters(), lr=0.01, weight_decay=0.1)
    for parameter in net.parameters():
        nn.init.ones_(parameter)
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert {key for key, parameter in net.named_parameters() if (parameter != 1).any()} == {"0.weight", "2.weight"}
    assert net.state_dict()["0.weight"][0, 0, 0, 0].item() == pytest.approx(1 - 0.01 * 0.1)


def test_every_parameter_is_in_one_group() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 2).requires_grad_(False))
    optimizer = adamw_groups(net.parameters())
    grouped = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    assert sorted(grouped) == sorted(id(parameter) for parameter in net.parameters() if parameter.requires_grad)


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


@pytest.mark.parametrize(
    ("make", "total", "sentence"),
    [
        (
            partial(one_cycle, warmup_fraction=1.0),
            10,
            r"^scheduler.warmup_fraction=1.0: it must be at least 0 and be",
        ),
        (
            one_cycle,
            float("inf"),
            r"^scheduler=onecycle: the length of an epoch of the data is unknown; write sched",
        ),
        (warmup_linear, float("inf"), r"^scheduler=warmup_linear: the length of an epoch of the data is unknown"),
        (warmup_linear, 50, r"^scheduler.warmup_steps=100: the run has 50 steps; write scheduler.warmup_steps=5\.$"),
        (partial(warmup_linear, warmup_steps=-1), 50, r"^scheduler.warmup_steps=-1: the run has 50 steps"),
    ],
)
def test_schedules_that_do_not_fit_the_run_are_refused(make: Any, total: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        make(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0), total)
