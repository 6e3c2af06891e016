"""The strategy of model_parallel: what belongs to stages stays on their devices."""

import torch
from torch import nn

from tests.conftest import MakePlan


def test_an_optimizers_state_goes_to_its_parameters(make_plan: MakePlan) -> None:
    """One parameter on the CPU, one on a device without memory: what is sent there cannot be fetched by accident."""
    saved = torch.optim.Adam([nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))])
    for parameter in saved.param_groups[0]["params"]:
        parameter.grad = torch.ones_like(parameter)
    saved.step()
    spread = torch.optim.Adam([nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3, device="meta"))])
    plan = make_plan("strategy=model_parallel", "model=split_cnn", "devices=2", "accelerator=cpu")
    assert not plan.strategy.lightning(plan).lightning_restore_optimizer, "it would move them to one device"
    plan.strategy.tensors.load_optimizer_state(spread, saved.state_dict())
    first, second = (spread.state[parameter]["exp_avg"] for parameter in spread.param_groups[0]["params"])
    assert (first.device.type, second.device.type) == ("cpu", "meta")
    assert torch.equal(first, torch.full((2,), 0.1))
