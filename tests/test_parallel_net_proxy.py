"""A replaced `net`: calls go elsewhere, all else is the net's; copies and pickled modules are plain."""

import copy
import pickle

import torch
from torch import Tensor, nn

from lockstep.strategies.parallel.cpu_data_parallel import CpuDataParallel
from lockstep.strategies.parallel.net_proxy import replace_forward
from lockstep.strategies.parallel.pipeline_stages import PipelineStages
from lockstep.strategies.strategy import net_of


class Module(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
        self.head = nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.net(x))
        return y


def replaced() -> tuple[Module, list[int]]:
    """Return a module whose net is replicated, and the samples of each replica's calls."""
    module, sizes = Module(), list[int]()
    net = net_of(module)
    assert net is not None
    net.register_forward_hook(lambda _, inputs, __: sizes.append(len(inputs[0])))
    replace_forward(module, net, CpuDataParallel(net, 2))
    return module, sizes


def test_calls_are_the_replicas_and_names_stay() -> None:
    module, sizes = replaced()
    names = [*Module().state_dict()]
    assert [*module.state_dict()] == names
    assert [name for name, _ in module.named_parameters()] == names
    module(torch.ones(6, 4))
    assert sizes == [3, 3]
    assert net_of(module) is module._modules["net"], "the net, not the proxy"
    stages = PipelineStages([*module.net], [torch.device("cpu")])
    replace_forward(module, module.get_submodule("net"), stages)
    assert net_of(module) is module._modules["net"]


def test_attributes_are_the_nets() -> None:
    module, _ = replaced()
    net = module._modules["net"]
    assert isinstance(module.net, nn.Sequential)
    assert module.net[0] is net[0]  # type: ignore[index]
    assert [*module.net] == [*net.children()]  # type: ignore[union-attr]
    assert (len(module.net), bool(module.net)) == (3, True)
    module.net.rate = 0.5  # type: ignore[assignment]
    assert net.rate == 0.5  # type: ignore[union-attr]
    assert module.net.eval() is net
    assert not net.training


def test_another_net_is_called_itself() -> None:
    module, sizes = replaced()
    module.net = nn.Sequential(nn.Linear(4, 2))
    module(torch.ones(6, 4))
    assert sizes == []
    assert [name for name, _ in module.named_parameters()][:2] == ["net.0.weight", "net.0.bias"]


def test_copies_are_plain_and_apart() -> None:
    """Of the module, and of its net under a second name, whose weights are then the module's."""
    module, _ = replaced()
    module.net._forward_hooks.clear()  # a local function cannot be pickled
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert type(other.net) is nn.Sequential
        assert other.net is other._modules["net"]
        assert torch.equal(other(torch.ones(2, 4)), module(torch.ones(2, 4)))
        nn.init.zeros_(other.get_parameter("net.0.weight"))
        assert module.get_parameter("net.0.weight").any()
    module.teacher = copy.deepcopy(module.net)
    assert "teacher.0.weight" in module.state_dict()
