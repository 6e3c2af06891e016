import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

from lockstep.optimizers import create_optimizer, update_together
from lockstep.schedulers import one_cycle, warmup_linear
from tests.conftest import MakePlan


def test_warm_up_and_decay_by_hand() -> None:
    factors = [warmup_linear(step, warmup=4, total=10) for step in range(10)]
    assert factors == [1 / 4, 2 / 4, 3 / 4, 4 / 4, 6 / 6, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]
    assert [warmup_linear(step, warmup=0, total=4) for step in range(4)] == [1, 3 / 4, 2 / 4, 1 / 4]


@pytest.mark.parametrize(("fraction", "total"), [(0.3, 20), (0.5, 101), (0.9, 40), (0.05, 200)])
def test_one_cycle_is_torchs(fraction: float, total: int) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    torchs = OneCycleLR(optimizer, max_lr=1.0, total_steps=total, pct_start=fraction, cycle_momentum=False)
    rates = []
    for _ in range(total):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if len(rates) < total:
            torchs.step()
    assert [one_cycle(step, fraction, total) for step in range(total)] == pytest.approx(rates, abs=1e-12)


@pytest.mark.parametrize("total", [1, 2, 3, 10])
@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5])
def test_one_cycle_of_few_steps_stays_a_rate(fraction: float, total: int) -> None:
    assert all(0 < one_cycle(step, fraction, total) <= 1 for step in range(total + 5))


def test_adamw_is_not_adam(make_plan: MakePlan) -> None:
    ends = {}
    for name in ("adam", "adamw"):
        net = nn.Linear(1, 1, bias=False, dtype=torch.float64)
        nn.init.ones_(net.weight)
        plan = make_plan(f"optimizer={name}", "optimizer.weight_decay=0.1", "optimizer.lr=0.01")
        optimizer = create_optimizer(plan.optimizer, net)
        net.weight.grad = torch.ones_like(net.weight)
        optimizer.step()
        ends[name] = net.weight.item()
    # the first step moves by lr·g/(|g| + eps), with bias-corrected moments; AdamW also shrinks the weight by lr·decay
    assert ends["adam"] == pytest.approx(1 - 0.01, abs=1e-9)
    assert ends["adamw"] == pytest.approx(1 * (1 - 0.01 * 0.1) - 0.01, abs=1e-9)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_biases_and_norm_layers_are_spared(make_plan: MakePlan, name: str) -> None:
    """Gradients are 0, so decay alone can move a parameter: by hand, the first step of adamw is 1 - 0.01·0.1."""
    for spared in (True, False):
        net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 2))
        decay = f"optimizer.decay_bias_and_norm={str(not spared).lower()}"
        plan = make_plan(f"optimizer={name}", "optimizer.lr=0.01", "optimizer.weight_decay=0.1", decay)
        optimizer = create_optimizer(plan.optimizer, net)
        for parameter in net.parameters():
            nn.init.ones_(parameter)
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        moved = {key for key, parameter in net.named_parameters() if (parameter != 1).any()}
        assert moved == ({"0.weight", "2.weight"} if spared else {key for key, _ in net.named_parameters()})
        if name == "adamw":
            assert net.state_dict()["0.weight"][0, 0, 0, 0].item() == pytest.approx(1 - 0.01 * 0.1)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_every_parameter_is_trained(make_plan: MakePlan, name: str) -> None:
    """Spared from decay or not: each is in one group, and goes down its gradient."""
    for decays in ("true", "false"):
        net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 2))
        choice = (f"optimizer={name}", f"optimizer.decay_bias_and_norm={decays}", "optimizer.weight_decay=0.1")
        optimizer = create_optimizer(make_plan(*choice, "optimizer.lr=0.01").optimizer, net)
        grouped = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
        assert sorted(grouped) == sorted(map(id, net.parameters()))
        before = [parameter.detach().clone() for parameter in net.parameters()]
        for parameter in net.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        assert all((after < start).all() for after, start in zip(net.parameters(), before, strict=True))


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
