"""Stages on devices: the moves are made, the order lets neighbours overlap, the numbers are the net's."""

import pytest
import torch
from torch import Tensor, nn

from lockstep.nets.lenet import SplitCNN
from lockstep.strategies.parallel.pipeline_stages import PipelineStages, schedule
from lockstep.strategies.parallel.tensor_layout import load_optimizer_state
from tests.conftest import MakePlan

CPU, META = torch.device("cpu"), torch.device("meta")


def images(count: int) -> Tensor:
    return torch.randn(count, 1, 28, 28, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def split_cnn() -> SplitCNN:
    torch.manual_seed(0)
    return SplitCNN((1, 28, 28), 10).double()


def test_the_order_lets_stages_overlap() -> None:
    """Three micro-batches, two stages: at each tick both stages have work, of neighbouring micro-batches."""
    assert list(schedule(3, 2)) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    ticks = [(0, 0)], [(0, 1), (1, 0)], [(0, 2), (1, 1)], [(1, 2)]
    assert list(schedule(2, 3)) == [pair for tick in ticks for pair in tick]


@pytest.mark.parametrize("micro_batches", [1, 2, 4, 7, 50])
def test_outputs_and_gradients_are_the_nets(micro_batches: int) -> None:
    alone, staged = split_cnn(), split_cnn()
    expected = alone(images(13))
    expected.square().sum().backward()
    outputs = PipelineStages(staged.stages, [CPU, CPU], micro_batches)(images(13))
    outputs.square().sum().backward()  # type: ignore[no-untyped-call]
    bound = 0.0 if micro_batches == 1 else 1e-12
    assert torch.allclose(outputs, expected, atol=bound, rtol=0)
    for staged_parameter, parameter in zip(staged.parameters(), alone.parameters(), strict=True):
        assert staged_parameter.grad is not None
        assert parameter.grad is not None
        assert torch.allclose(staged_parameter.grad, parameter.grad, atol=bound, rtol=0)


class Moving(PipelineStages):
    """Notes every move."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.moves: list[tuple[tuple[int, ...], str]] = []

    def move(self, activation: Tensor, device: torch.device) -> Tensor:
        self.moves.append((tuple(activation.shape[1:]), device.type))
        return super().move(activation, device)


def test_activations_cross_three_times_and_come_home() -> None:
    stages = Moving(split_cnn().stages, [CPU, CPU])
    stages(images(2))
    assert [shape for shape, _ in stages.moves] == [(1, 28, 28), (10, 12, 12), (320,), (50,), (10,)]


def test_stages_take_turns_on_the_devices_and_the_moves_are_real() -> None:
    """On a device without memory (`meta`) a tensor cannot come back: so it was really sent there."""
    net = split_cnn()
    stages = Moving(net.stages, [CPU, META])
    assert [next(stage.parameters()).device.type for stage in net.stages] == ["cpu", "meta", "cpu", "meta"]
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        stages(images(2))
    assert [device for _, device in stages.moves] == ["cpu", "meta", "cpu"], "to stage 0, to 1, and the way back"


def test_an_optimizers_state_goes_to_its_parameters(make_plan: MakePlan) -> None:
    """One parameter on the CPU, one on a device without memory: what is sent there cannot be fetched by accident."""
    saved = torch.optim.Adam([nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))])
    for parameter in saved.param_groups[0]["params"]:
        parameter.grad = torch.ones_like(parameter)
    saved.step()
    spread = torch.optim.Adam([nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3, device="meta"))])
    plan = make_plan("strategy=model_parallel", "model=split_cnn", "devices=2", "accelerator=cpu")
    assert not plan.strategy.lightning(plan).lightning_restore_optimizer, "it would move them to one device"
    load_optimizer_state(spread, saved.state_dict())
    first, second = (spread.state[parameter]["exp_avg"] for parameter in spread.param_groups[0]["params"])
    assert (first.device.type, second.device.type) == ("cpu", "meta")
    assert torch.equal(first, torch.full((2,), 0.1))
