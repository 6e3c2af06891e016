"""The strategy of model_parallel: what belongs to stages stays on their devices."""

from collections.abc import Callable

import torch
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import nn

from lockstep.lit.module import Supervised
from lockstep.nets.split_cnn import SplitCNN
from lockstep.parallel import GlobalMasks
from lockstep.plan import Plan
from lockstep.sums.step_counts import StepCounts


def test_an_optimizers_state_goes_to_its_parameters(make_plan: Callable[..., Plan]) -> None:
    """One parameter on the CPU, one on a device without memory: what is sent there cannot be fetched by accident."""
    saved = torch.optim.Adam([nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))])
    for parameter in saved.param_groups[0]["params"]:
        parameter.grad = torch.ones_like(parameter)
    saved.step()
    spread = torch.optim.Adam([nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3, device="meta"))])
    plan = make_plan("strategy=model_parallel", "model=split_cnn", "devices=2", "accelerator=cpu")
    strategy = plan.strategy.lightning(plan)
    strategy.optimizers = [spread]
    strategy.load_optimizer_state_dict({"optimizer_states": [saved.state_dict()]})
    first, second = (spread.state[parameter]["exp_avg"] for parameter in spread.param_groups[0]["params"])
    assert (first.device.type, second.device.type) == ("cpu", "meta")
    assert torch.equal(first, torch.full((2,), 0.1))


def test_what_counts_is_on_the_first_device(make_plan: Callable[..., Plan]) -> None:
    """The first device stands apart from the CPU here, where the stages are placed."""
    plan = make_plan("strategy=model_parallel", "model=split_cnn", "devices=2", "accelerator=cpu")
    counts = StepCounts(plan.objective, torch.device("cpu"))
    module = Supervised(SplitCNN((1, 28, 28), 10), plan, GlobalMasks(plan, 0), counts)
    module.counts = nn.BatchNorm1d(1)
    strategy = plan.strategy.lightning(plan)
    assert isinstance(strategy, SingleDeviceStrategy)
    strategy._root_device, strategy._lightning_module = torch.device("meta"), module
    strategy.model_to_device()
    assert {tensor.device.type for tensor in module.counts.state_dict().values()} == {"meta"}
    assert {parameter.device.type for parameter in module.net.parameters()} == {"cpu"}
