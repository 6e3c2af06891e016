"""Loops by hand, in plain torch: mistakes that a Trainer does not let its users make.

Each function trains on the ranks of the process group, or alone. Before each step it yields what a recorder records.
The last three show in their source alone: what is wrong there hangs, or trains to other numbers in any layout.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.silent_bugs.base import draw_points, mean_over_ranks, rank_and_world


@dataclass
class Step:
    """The inputs and the loss of this rank, and the net with its gradients."""

    inputs: Tensor
    loss: Tensor
    net: nn.Module


def new_net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)).double()


def new_data() -> TensorDataset:
    inputs, targets = draw_points(32, seed=0)
    return TensorDataset(inputs.double(), targets.double())


def share_in_order() -> DataLoader[tuple[Tensor, ...]]:
    """Return the loader of this rank's share, without shuffling."""
    rank, world = rank_and_world()
    data = new_data()
    return DataLoader(data, 8 // world, sampler=DistributedSampler(data, world, rank, shuffle=False))


def average_gradients(net: nn.Module) -> None:
    for parameter in net.parameters():
        if parameter.grad is not None:
            parameter.grad.copy_(mean_over_ranks(parameter.grad))


# 1 set_epoch forgotten


def forgotten_set_epoch() -> Iterator[Step]:
    rank, world = rank_and_world()
    net, data = new_net(), new_data()
    sampler = DistributedSampler(data, world, rank)  # type: ignore[var-annotated]
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _epoch in range(2):
        for inputs, targets in DataLoader(data, 8 // world, sampler=sampler):
            loss = mse_loss(net(inputs), targets)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            average_gradients(net)
            yield Step(inputs, loss, net)
            optimizer.step()


def correct_forgotten_set_epoch() -> Iterator[Step]:
    rank, world = rank_and_world()
    net, data = new_net(), new_data()
    sampler = DistributedSampler(data, world, rank)  # type: ignore[var-annotated]
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, targets in DataLoader(data, 8 // world, sampler=sampler):
            loss = mse_loss(net(inputs), targets)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            average_gradients(net)
            yield Step(inputs, loss, net)
            optimizer.step()


# 8 the net called past DistributedDataParallel


def past_ddp() -> Iterator[Step]:
    net = new_net()
    model = DistributedDataParallel(net) if rank_and_world()[1] > 1 else net
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for inputs, targets in share_in_order():
        loss = mse_loss(net(inputs), targets)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        yield Step(inputs, loss, net)
        optimizer.step()


def correct_past_ddp() -> Iterator[Step]:
    net = new_net()
    model = DistributedDataParallel(net) if rank_and_world()[1] > 1 else net
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for inputs, targets in share_in_order():
        loss = mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        yield Step(inputs, loss, net)
        optimizer.step()


# 11 each rank draws its weights, and no rank sends them


def unsent_weights() -> Iterator[Step]:
    net = new_net(seed=rank_and_world()[0])
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for inputs, targets in share_in_order():
        loss = mse_loss(net(inputs), targets)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        average_gradients(net)
        yield Step(inputs, loss, net)
        optimizer.step()


def correct_unsent_weights() -> Iterator[Step]:
    net = new_net(seed=rank_and_world()[0])
    if rank_and_world()[1] > 1:
        for parameter in net.parameters():
            distributed.broadcast(parameter.data, 0)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for inputs, targets in share_in_order():
        loss = mse_loss(net(inputs), targets)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        average_gradients(net)
        yield Step(inputs, loss, net)
        optimizer.step()


# 19 each rank scales its loss by what has overflowed in its shard


class Shards:
    """Layers that ranks share out, as ZeRO does: each looks for an overflow of float16 in its layers' gradients."""

    def __init__(self, net: nn.Module) -> None:
        rank, world = rank_and_world()
        self.parameters = [*net.parameters()][rank::world]

    def overflow(self) -> Tensor:
        return torch.tensor(
            any(float(each.grad.abs().max()) > 65504 for each in self.parameters if each.grad is not None)
        )


def scale_of_rank() -> Iterator[Step]:
    net, scale = new_net(), 2.0**16
    shards, optimizer = Shards(net), torch.optim.SGD(net.parameters(), 0.1)
    for inputs, targets in share_in_order():
        loss = mse_loss(net(inputs), targets)
        optimizer.zero_grad()
        (scale * loss).backward()  # type: ignore[no-untyped-call]
        average_gradients(net)
        overflow = float(shards.overflow())
        for parameter in net.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(scale)
        scale = scale / 2 if overflow else scale
        yield Step(inputs, loss, net)
        optimizer.step()


def correct_scale_of_rank() -> Iterator[Step]:
    net, scale = new_net(), 2.0**16
    shards, optimizer = Shards(net), torch.optim.SGD(net.parameters(), 0.1)
    for inputs, targets in share_in_order():
        loss = mse_loss(net(inputs), targets)
        optimizer.zero_grad()
        (scale * loss).backward()  # type: ignore[no-untyped-call]
        average_gradients(net)
        overflow = float(mean_over_ranks(shards.overflow().double()))
        for parameter in net.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(scale)
        scale = scale / 2 if overflow else scale
        yield Step(inputs, loss, net)
        optimizer.step()


# 0 a collective that rank 0 alone calls


def reduced_by_rank_0() -> Iterator[Step]:
    rank, world = rank_and_world()
    net = new_net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for inputs, targets in share_in_order():
        loss = mse_loss(net(inputs), targets)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        average_gradients(net)
        if rank == 0 and world > 1:
            distributed.all_reduce(loss.detach())
        yield Step(inputs, loss, net)
        optimizer.step()


def correct_reduced_by_rank_0() -> Iterator[Step]:
    rank, world = rank_and_world()
    net = new_net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for inputs, targets in share_in_order():
        loss = mse_loss(net(inputs), targets)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        average_gradients(net)
        total = loss.detach().clone()
        if world > 1:
            distributed.all_reduce(total)
        if rank == 0:
            assert total.isfinite()
        yield Step(inputs, loss, net)
        optimizer.step()


# 0 a validation that leaves the net in eval mode, and one in training mode


def train_forgotten() -> Iterator[Step]:
    net = nn.Sequential(new_net(), nn.Dropout(0.1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _epoch in range(2):
        for inputs, targets in share_in_order():
            loss = mse_loss(net(inputs), targets)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            average_gradients(net)
            yield Step(inputs, loss, net)
            optimizer.step()
        net.eval()
        with torch.no_grad():
            assert net(inputs).isfinite().all()


def correct_train_forgotten() -> Iterator[Step]:
    net = nn.Sequential(new_net(), nn.Dropout(0.1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _epoch in range(2):
        net.train()
        for inputs, targets in share_in_order():
            loss = mse_loss(net(inputs), targets)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            average_gradients(net)
            yield Step(inputs, loss, net)
            optimizer.step()
        net.eval()
        with torch.no_grad():
            assert net(inputs).isfinite().all()


def eval_forgotten() -> Iterator[Step]:
    net = nn.Sequential(new_net(), nn.Dropout(0.1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _epoch in range(2):
        for inputs, targets in share_in_order():
            loss = mse_loss(net(inputs), targets)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            average_gradients(net)
            yield Step(inputs, loss, net)
            optimizer.step()
        with torch.no_grad():
            for inputs, _targets in share_in_order():
                assert net(inputs).isfinite().all()


def correct_eval_forgotten() -> Iterator[Step]:
    net = nn.Sequential(new_net(), nn.Dropout(0.1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _epoch in range(2):
        for inputs, targets in share_in_order():
            loss = mse_loss(net(inputs), targets)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            average_gradients(net)
            yield Step(inputs, loss, net)
            optimizer.step()
        net.eval()
        with torch.no_grad():
            for inputs, _targets in share_in_order():
                assert net(inputs).isfinite().all()
        net.train()
