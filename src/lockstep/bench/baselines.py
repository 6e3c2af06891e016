"""The loops that the engines are compared with. `source`: as the sources write it. `bare`: a plain loop over tensors.

Both train the plan's net on the plan's data with the plan's batch, rate, epochs and threads, in one process, on one
device, and return the seconds of training alone, as the engines count them: from the first batch, whose allocations and
choice of kernels are in it. They keep no record and save nothing.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo  # the first optimizer step would import it, on the clock; with Lightning it is there
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision import transforms

from lockstep import data, schemas
from lockstep.bench.context import BenchPayload
from lockstep.data.tensors import TensorData
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.session.create_model import create_float32_net
from lockstep.sums.phases import synchronize


def run(payload: BenchPayload, context: RankContext) -> float:
    """Called by the launcher; `subject` is the name of a loop."""
    plan = payload.plan
    tensors = data.load(plan.data)
    device, *_ = plan.strategy.devices(plan)
    net = create_float32_net(plan, tensors).to(device)
    epoch = LOOPS[payload.subject](plan, tensors, net, plain_optimizer(plan, net), device)
    began = time.perf_counter()
    for _ in range(plan.max_epochs):
        epoch()
    synchronize(device)
    return time.perf_counter() - began


def plain_optimizer(plan: Plan, net: nn.Module) -> Optimizer:
    choice = plan.optimizer
    if isinstance(choice, schemas.SGD):
        return SGD(net.parameters(), lr=choice.lr, momentum=choice.momentum)
    return Adam(net.parameters(), lr=choice.lr)


class Samples(Dataset[tuple[Tensor, int]]):
    """One image at a time by way of PIL, as torchvision's MNIST hands it to its transform."""

    def __init__(self, tensors: TensorData) -> None:
        self.inputs, self.targets = tensors.train.inputs, tensors.train.targets
        normalize = [transforms.Normalize((tensors.mean,), (tensors.std,))] if tensors.mean else []
        self.transform = transforms.Compose([transforms.ToTensor(), *normalize])

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = Image.fromarray(self.inputs[index, 0].numpy(), mode="L")
        return self.transform(image), int(self.targets[index])


def source(
    plan: Plan, tensors: TensorData, net: nn.Module, optimizer: Optimizer, device: torch.device
) -> Callable[[], None]:
    """An epoch as the sources write it. (Their SimpleCNN has biases in front of BatchNorm too; ours has none.)"""
    inputs, targets = tensors.train.inputs, tensors.train.targets
    images = inputs.dtype == torch.uint8
    samples: Dataset[Any] = Samples(tensors) if images else TensorDataset(inputs.float(), targets.float())
    loader = DataLoader(samples, batch_size=plan.batch_size, shuffle=True)
    criterion = nn.CrossEntropyLoss() if plan.data.classes else nn.MSELoss()

    def epoch() -> None:
        total, correct = 0.0, 0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            outputs = net(x)
            loss = criterion(outputs, y)
            loss.backward()
            optimizer.step()
            total += loss.item()
            if plan.data.classes:
                correct += (outputs.argmax(dim=1) == y).sum().item()
        print(f"loss {total / len(loader):.4f}  correct {correct}")

    return epoch


def bare(
    plan: Plan, tensors: TensorData, net: nn.Module, optimizer: Optimizer, device: torch.device
) -> Callable[[], None]:
    """An epoch over tensors by index; images lie in memory as uint8 and are normalised batch by batch."""
    inputs, targets = (tensor.to(device) for tensor in (tensors.train.inputs, tensors.train.targets))
    images = inputs.dtype == torch.uint8
    if not images:
        inputs, targets = inputs.float(), targets.float()
    loss_of = F.cross_entropy if plan.data.classes else F.mse_loss

    def epoch() -> None:
        order = torch.randperm(len(inputs)).to(device)
        for first in range(0, len(order), plan.batch_size):
            ids = order[first : first + plan.batch_size]
            x = inputs[ids]
            if images:
                x = x.float().div_(255).sub_(tensors.mean).div_(tensors.std)
            optimizer.zero_grad()
            loss_of(net(x), targets[ids]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return epoch


LOOPS = {"source": source, "bare": bare}
