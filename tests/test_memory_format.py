"""channels_last on a CPU only for plain convolutions: others may write past their memory."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from lockstep.base.config_error import ConfigError
from lockstep.engine.session import prepared_module
from lockstep.launch.memory import memory_format_of
from lockstep.runs.checkpoint.reading import identity
from lockstep.runs.compare.tolerance import tolerance_between
from tests.conftest import MakePlan


def test_built_in_nets_have_their_channels_last(make_plan: MakePlan) -> None:
    plan = make_plan("model=cnn", "accelerator=cpu")
    net = prepared_module(plan).net
    weight = next(module.weight for module in net.modules() if isinstance(module, nn.Conv2d))
    assert weight.is_contiguous(memory_format=torch.channels_last)
    plain = prepared_module(replace(plan, memory_format="contiguous"))
    assert all(parameter.is_contiguous() for parameter in plain.parameters())


class FreeKernel(nn.Module):
    """A convolution's weight outside a convolution module."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(8, 16, 1, 1))


def test_unusual_nets_stay_contiguous_on_a_cpu(make_plan: MakePlan) -> None:
    plan = make_plan("model=cnn", "accelerator=cpu")
    for layer in (nn.Conv2d(16, 32, 3, stride=2), nn.Conv2d(16, 8, 1), nn.Conv3d(1, 2, 3), FreeKernel()):
        net = nn.Sequential(nn.Conv2d(1, 16, 3), layer)
        assert memory_format_of(plan, net) == torch.contiguous_format
        on_gpu = torch.contiguous_format if isinstance(layer, nn.Conv3d) else torch.channels_last
        assert memory_format_of(replace(plan, accelerator="gpu"), net) == on_gpu


def test_unsafe_channels_last_is_refused(make_plan: MakePlan) -> None:
    plan = make_plan("model=cnn", "accelerator=cpu", "memory_format=channels_last")
    for good in (nn.Conv2d(3, 8, 3, stride=2), nn.Conv2d(8, 8, 1), nn.Conv2d(16, 8, 1, stride=2), nn.Linear(2, 2)):
        assert memory_format_of(plan, nn.Sequential(good)) == torch.channels_last
    for bad in (nn.Conv2d(3, 8, 1, stride=2), nn.Conv2d(15, 64, 1, stride=(1, 3)), nn.Conv2d(32, 8, 1, 2, groups=4)):
        with pytest.raises(ConfigError, match=r"memory_format=channels_last: .* corrupts memory; write memory_form"):
            memory_format_of(plan, nn.Sequential(bad))
        assert memory_format_of(replace(plan, accelerator="gpu"), bad) == torch.channels_last


def test_runs_of_two_formats_owe_other_bits_and_go_on_from_each_other(make_plan: MakePlan) -> None:
    plans = [make_plan("model=cnn", f"memory_format={choice}") for choice in ("auto", "contiguous")]
    one, other = (plan.summary() for plan in plans)
    assert str(tolerance_between(one, one)) == "identical"
    assert str(tolerance_between(one, other)) == "within 0.0001 in the first 3 steps"
    assert identity(plans[0], True) == identity(plans[1], True)
