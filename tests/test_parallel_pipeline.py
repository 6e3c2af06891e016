"""The net in parts on ranks: outputs and gradients are those of the net in one process."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lockstep.base.config_error import ConfigError
from lockstep.launch.topology import RankContext
from lockstep.nets.transformer import Transformer
from lockstep.plan.plan import Plan
from lockstep.runs.run_files import Metrics
from lockstep.strategies.parallel.pipeline import PartOfPipeline, divide
from lockstep.strategies.parallel.tensor_layout import owners_of
from tests.inspections import plan_here
from tests.rank_helpers import on_ranks

pytestmark = pytest.mark.timeout(300)


def linears(*sizes: int) -> list[nn.Module]:
    return [nn.Linear(1, size, bias=False) for size in sizes]


@pytest.mark.parametrize(
    ("sizes", "parts", "groups"),
    [
        ((1, 1, 1, 1), 2, [2, 2]),
        ((5, 1, 1, 1), 2, [1, 3]),
        ((1, 1, 1, 5), 3, [1, 2, 1]),
        ((1, 9, 1), 3, [1, 1, 1]),
        ((2, 2, 3, 3), 1, [4]),
    ],
)
def test_the_largest_part_has_as_few_weights_as_possible(
    sizes: Sequence[int], parts: int, groups: Sequence[int]
) -> None:
    assert [len(part) for part in divide(linears(*sizes), parts)] == groups


def net_and_batches() -> tuple[Transformer, list[tuple[Tensor, Tensor]]]:
    """Return a net whose first and last layer have one weight, and batches of which one is shorter."""
    torch.manual_seed(0)
    net = Transformer((6,), 11, width=8, layers=2, heads=2, dropout=0.0).double()
    return net, [(torch.randint(11, (size, 6)), torch.randint(11, (size, 6))) for size in (5, 5, 3)]


def add_gradients(forward: object, batches: Sequence[tuple[Tensor, Tensor]]) -> list[float]:
    losses = []
    for x, y in batches:
        loss = cross_entropy(forward(x).flatten(0, 1), y.flatten())  # type: ignore[operator]
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.item())
    return losses


def compute(plan: Plan, context: RankContext) -> Metrics:
    """On a rank: return the largest differences to one process, relative to the largest number."""
    torch.set_num_threads(1)
    net, batches = net_and_batches()
    expected, _ = net_and_batches()
    pipeline = PartOfPipeline(net, net.stages, 3, torch.device("cpu"))
    losses, reference = add_gradients(pipeline, batches), add_gradients(expected, batches)
    with torch.no_grad():
        outputs = (pipeline(batches[0][0]) - expected(batches[0][0])).abs().max().item()
    gradients = 0.0
    for weight, like in zip(net.parameters(), expected.parameters(), strict=True):
        assert weight.is_meta == (context.rank not in owners_of(weight)) == (weight.grad is None)
        if weight.grad is not None:
            assert like.grad is not None
            gradients = max(gradients, (weight.grad - like.grad).abs().max().item())
    assert math.dist(losses, reference) < 1e-12, (losses, reference)
    assert outputs < 1e-12
    assert 0 < gradients < 1e-12  # sums in another order
    with pytest.raises(ConfigError, match="it sends one tensor from part to part"):
        pipeline(batches[0][0], batches[0][1])
    return {}


def test_parts_compute_what_the_net_does(tmp_path: Path) -> None:
    """Over accumulated batches, with a short one, and a weight that the first and the last rank share."""
    on_ranks(
        plan_here(["model=linear", "strategy=ddp", "devices=3", "accelerator=cpu", "threads=1"], tmp_path), compute
    )


def compute_twice(plan: Plan, context: RankContext) -> Metrics:
    """On a rank: two batches with and without a second forward of each micro-batch are the same, bit for bit."""
    saved, ends = [0, 0], []
    for recomputes in (False, True):
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Linear(4, 32), nn.BatchNorm1d(32), nn.Dropout(0.5), nn.Linear(32, 32), nn.BatchNorm1d(32)
        )
        pipeline = PartOfPipeline(net, [*net], 4, torch.device("cpu"), recomputes)

        def keep(tensor: Tensor, recomputes: bool = recomputes) -> Tensor:
            saved[recomputes] += tensor.numel()
            return tensor

        def forward(inputs: Tensor, part: PartOfPipeline = pipeline, pack: Any = keep) -> Any:
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                return PartOfPipeline.forward(part, inputs)

        with patch.object(pipeline, "forward", forward):
            for _ in range(2):
                pipeline(torch.randn(16, 4)).square().sum().backward()  # type: ignore[no-untyped-call]
        gradients = [weight.grad for weight in pipeline.part.parameters() if weight.grad is not None]
        ends.append([*gradients, *net.buffers()])
    assert len(ends[0]) > 6
    assert all(torch.equal(first, second) for first, second in zip(*ends, strict=True))
    inputs = 2 * 16 * (4 if context.rank == 0 else 32)  # of the part
    assert saved[0] > 3 * saved[1] == 3 * inputs, saved
    return {}


def test_a_second_forward_keeps_inputs_alone_and_changes_no_bit(tmp_path: Path) -> None:
    words = ["model=linear", "strategy=ddp", "devices=2", "accelerator=cpu", "threads=1"]
    on_ranks(plan_here(words, tmp_path), compute_twice)
