"""The loops that the engines are compared with: `source` as the sources write it, `bare` as a plain loop over tensors.

Both train the plan's net on its data in one process, and return the seconds of training as the engines count them, from
the first batch on. They keep no record and save nothing.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo  # the first optimizer step would import it while timed; with Lightning it is there
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision import transforms

from bench.runs import BenchPayload
from lockstep import data, schemas
from lockstep.data.tensors import TensorData
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.session.create_model import create_float32_net
from lockstep.sums.phases import synchronize


def run(payload: BenchPayload, context: RankContext) -> float:
    """Train by the loop called `payload.subject` and return the seconds; the launcher calls it."""
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
    options = plan.optimizer
    if isinstance(options, schemas.SGD):
        return SGD(net.parameters(), lr=options.lr, momentum=options.momentum)
    return Adam(net.parameters(), lr=options.lr)


class Images(Dataset[tuple[Tensor, int]]):
    """One image at a time through PIL and a transform, like torchvision's MNIST."""

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
    """Return an epoch as the sources write it. (Their SimpleCNN has biases in front of BatchNorm too.)"""
    inputs, targets = tensors.train.inputs, tensors.train.targets
    is_image = inputs.dtype == torch.uint8
    dataset: Dataset[Any] = Images(tensors) if is_image else TensorDataset(inputs.float(), targets.float())
    loader = DataLoader(dataset, batch_size=plan.batch_size, shuffle=True)
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
    """Return an epoch over tensors in memory; uint8 images are normalized batch by batch."""
    inputs, targets = tensors.train.inputs.to(device), tensors.train.targets.to(device)
    is_image = inputs.dtype == torch.uint8
    if not is_image:
        inputs, targets = inputs.float(), targets.float()
    loss_function = F.cross_entropy if plan.data.classes else F.mse_loss

    def epoch() -> None:
        for indices in torch.split(torch.randperm(len(inputs), device=device), plan.batch_size):
            x = inputs[indices]
            if is_image:
                x = x.float().div_(255).sub_(tensors.mean).div_(tensors.std)
            optimizer.zero_grad()
            loss_function(net(x), targets[indices]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return epoch


LOOPS = {"source": source, "bare": bare}
