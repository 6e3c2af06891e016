"""DataParallel's semantics without GPUs: chunks as torch's, one set of parameters, buffers of replica 0."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from lockstep.base.precision import MIXED
from lockstep.strategies.parallel.cpu_data_parallel import AutocastWrapper, CpuDataParallel


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()


def gradients(module: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 7, 12])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_outputs_and_gradients_are_those_of_the_net(batch: int, count: int) -> None:
    """Batches smaller than the number of replicas, uneven chunks, one replica."""
    inputs = torch.randn(batch, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    alone, replicated = net(), net()
    expected = alone(inputs)
    expected.square().sum().backward()
    outputs = CpuDataParallel(replicated, count)(inputs)
    outputs.square().sum().backward()
    assert torch.allclose(outputs, expected, atol=1e-12, rtol=0)
    assert len(gradients(replicated)) == 4
    for gradient, other in zip(gradients(replicated), gradients(alone), strict=True):
        assert torch.allclose(gradient, other, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("batch", "count", "sizes"), [(12, 3, [4, 4, 4]), (7, 3, [3, 3, 1]), (4, 3, [2, 2]), (2, 3, [1, 1]), (5, 1, [5])]
)
def test_replicas_get_the_chunks_of_torch(batch: int, count: int, sizes: list[int]) -> None:
    seen, module = [], nn.Identity()
    module.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    outputs = CpuDataParallel(module, count)(torch.arange(batch).float()[:, None])
    assert seen == sizes
    assert outputs.flatten().tolist() == list(range(batch)), "the order of the batch is kept"


def test_replica_0_updates_the_buffers() -> None:
    """BatchNorm: each replica normalises its own chunk; the first chunk's statistics move the running ones."""
    module = nn.BatchNorm1d(1, momentum=0.5)
    inputs = torch.tensor([[0.0], [2.0], [10.0], [14.0]])
    outputs = CpuDataParallel(module, 2)(inputs)
    assert torch.allclose(outputs.flatten(), torch.tensor([-1.0, 1.0, -1.0, 1.0]), atol=1e-4)
    assert module.running_mean is not None
    assert module.num_batches_tracked is not None
    assert module.running_mean.tolist() == [0.5]  # half of the way from 0 to the mean of 0 and 2
    assert module.num_batches_tracked.item() == 1


def test_gradients_are_added_in_the_order_of_the_replicas() -> None:
    """Three replicas in float32: their gradients are added in the order of the replicas."""
    inputs = torch.randn(31, 3, generator=torch.Generator().manual_seed(2))
    module, chunks = net().float(), inputs.chunk(3)
    CpuDataParallel(module, 3)(inputs).square().sum().backward()
    parts = [torch.autograd.grad(module(chunk).square().sum(), [*module.parameters()]) for chunk in chunks]
    for gradient, *replicas in zip(gradients(module), *parts, strict=True):
        assert torch.equal(gradient, replicas[0] + replicas[1] + replicas[2])


def test_tied_parameters_stay_tied() -> None:
    module = net()
    module.append(nn.Linear(2, 3).double())
    module.append(module[0])
    inputs = torch.randn(4, 3, dtype=torch.float64)
    outputs = CpuDataParallel(module, 2)(inputs)
    assert torch.allclose(outputs, module(inputs), atol=1e-12, rtol=0)
    assert len(list(module.parameters())) == 6


@pytest.mark.parametrize(("precision", "dtype"), [("bf16-mixed", torch.bfloat16), ("32-true", torch.float32)])
def test_the_numbers_are_the_precisions_in_any_thread(precision: str, dtype: torch.dtype) -> None:
    net = AutocastWrapper(nn.Linear(2, 2), "cpu", MIXED.get(precision))
    with ThreadPoolExecutor(1) as other:
        assert other.submit(net, torch.ones(1, 2)).result().dtype == dtype


class Between(nn.Module):
    def forward(self, pair: tuple[Tensor, Tensor], share: Tensor, *, names: list[str]) -> Tensor:
        assert names == ["a", "b", "c"]
        return share * pair[0] + (1 - share) * pair[1]


def test_structures_are_divided_and_other_arguments_are_not() -> None:
    """Tensors of one sample a row, by position and within a tuple; a tensor without rows, and a list of names."""
    pair = torch.arange(5.0), torch.arange(5.0) + 2
    outputs = CpuDataParallel(Between(), 2)(pair, torch.tensor(0.5), names=["a", "b", "c"])
    assert outputs.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
