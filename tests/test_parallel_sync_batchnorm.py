"""BatchNorm over ranks against torch's BatchNorm over the whole batch, in float64; uneven and empty slices included."""

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.runs.run_files import Metrics
from lockstep.strategies.parallel.sync_batchnorm import SyncBatchNorm, convert_batchnorm
from tests.conftest import MakePlan
from tests.rank_helpers import on_ranks

SHAPES: tuple[tuple[int, ...], ...] = ((), (3,), (3, 5))
SLICES = [(4, 3, 2), (6, 0, 1)]
"""The samples of each of three ranks."""


def batch(samples: int, *shape: int) -> Tensor:
    values = torch.randn(samples, 4, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(samples))
    return values * 3 + 100  # far from zero: sums of squares would cancel


def stats(net: nn.Module, inputs: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Outputs, the inputs' gradient and the parameters' gradients, of a loss that tells all outputs apart."""
    inputs = inputs.clone().requires_grad_()
    outputs = net(inputs)
    (outputs * weights).square().sum().backward()
    assert inputs.grad is not None
    return (
        outputs.detach(),
        inputs.grad,
        [parameter.grad for parameter in net.parameters() if parameter.grad is not None],
    )


def compare_with_plain(plan: Plan, context: RankContext) -> Metrics:
    """Return the largest difference from plain BatchNorm over the joined slices, over two steps, and an error."""
    worst = 0.0
    for sizes in SLICES:
        for shape in SHAPES:
            kind: type[_BatchNorm] = nn.BatchNorm2d if len(shape) == 2 else nn.BatchNorm1d
            plain = kind(4).double()
            with torch.no_grad():
                plain.weight.copy_(torch.arange(1.0, 5.0))
                plain.bias.copy_(torch.arange(4.0))
            ours = kind(4).double()
            ours.load_state_dict(plain.state_dict())
            net = convert_batchnorm(nn.Sequential(ours))
            weights = torch.linspace(0.5, 2, sum(sizes), dtype=torch.float64).view(-1, *[1] * (1 + len(shape)))
            rows = slice(sum(sizes[: context.rank]), sum(sizes[: context.rank + 1]))
            for _step in range(2):
                expected = stats(plain, batch(sum(sizes), *shape), weights)
                actual = stats(net, batch(sum(sizes), *shape)[rows], weights[rows])
                for gradient in actual[2]:
                    dist.all_reduce(gradient)
                state = zip(net.state_dict().values(), plain.state_dict().values(), strict=True)
                pairs = [
                    (actual[0], expected[0][rows]),
                    (actual[1], expected[1][rows]),
                    *zip(actual[2], expected[2], strict=True),
                    *state,
                ]
                worst = max([worst, *((a - b).abs().max().item() for a, b in pairs if a.numel())])
                for parameter in (*net.parameters(), *plain.parameters()):
                    parameter.grad = None
            net.eval(), plain.eval()
            alone = batch(sum(sizes), *shape)[: 1 + context.rank]  # in evaluation ranks need not agree on anything
            worst = max(worst, (net(alone) - plain(alone)).abs().max().item())
    everyones: list[float] = [0.0] * plan.world_size
    dist.all_gather_object(everyones, worst)
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        convert_batchnorm(nn.Sequential(nn.BatchNorm1d(4)))(torch.ones(int(context.rank == 0), 4))
    return {"worst": max(everyones), "error": str(raised.value)}


def test_equals_batchnorm_over_the_global_batch(make_plan: MakePlan) -> None:
    """And one value per channel is an error, as it is for BatchNorm."""
    plan = make_plan("strategy=ddp_spawn", "devices=3", "batch_size=12", "accelerator=cpu")
    metrics = on_ranks(plan, compare_with_plain)
    assert metrics["worst"] < 1e-10  # type: ignore[operator]
    assert "more than one value per channel" in str(metrics["error"])


def test_one_rank_alone_takes_the_same_path() -> None:
    plain, ours = nn.BatchNorm1d(4).double(), nn.BatchNorm1d(4).double()
    net = convert_batchnorm(nn.Sequential(ours))
    assert isinstance(net[0], SyncBatchNorm)  # type: ignore[index]
    weights = torch.linspace(0.5, 2, 9, dtype=torch.float64)[:, None]
    for a, b in zip(stats(net, batch(9), weights)[:2], stats(plain, batch(9), weights)[:2], strict=True):
        assert torch.allclose(a, b, atol=1e-10, rtol=0)
