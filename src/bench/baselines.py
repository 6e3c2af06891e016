"""The loops that the engines are compared with: `source` as the sources write it, `bare` as a plain loop over tensors.

Both train the module's net on the tensors of its data in one process, keep no record, and save nothing.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo  # the first optimizer step would import it while timed; with Lightning it is there
import torch.nn.functional as F
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Subset, TensorDataset
from torchvision import transforms
from torchvision.datasets import MNIST

from bench.workloads import BenchPayload
from lockstep import datamodules
from lockstep.engine.loaders.source import create_data, create_module
from lockstep.engine.progress import synchronize
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan


def run(payload: BenchPayload, context: RankContext) -> float:
    """Train by the loop called `payload.subject` and return the seconds; the launcher calls it."""
    plan = payload.plan
    device, *_ = plan.strategy.devices(plan)
    data, net, optimizer = prepared(plan, device)
    train_epoch = LOOPS[payload.subject](plan, data, net, optimizer, device)
    began = time.perf_counter()
    for _ in range(plan.max_epochs):
        train_epoch()
    synchronize(device)
    return time.perf_counter() - began


def prepared(plan: Plan, device: torch.device) -> tuple[Any, nn.Module, Optimizer]:
    """Return the data module of a plan, set up, and the net and the optimizer of its module."""
    data, module = create_data(plan.data, plan.seed), create_module(plan.model, plan.seed)
    data.setup("fit")
    net = module.net.to(device)
    return data, net, module.optimizer(net.parameters())


def source(plan: Plan, data: Any, net: nn.Module, optimizer: Optimizer, device: torch.device) -> Callable[[], None]:
    """Return an epoch as the sources write it. (Their SimpleCNN has biases in front of BatchNorm too.)"""
    inputs, targets = data.datasets["train"].tensors
    if isinstance(data, datamodules.MNIST):
        normalize = transforms.Normalize((data.mean,), (data.std,))
        mnist = MNIST(data.root, download=True, transform=transforms.Compose([transforms.ToTensor(), normalize]))
        dataset: Any = Subset(mnist, range(len(inputs)))
    else:
        dataset = TensorDataset(*data.on_after_batch_transfer([inputs, targets], 0))
    loader = DataLoader(dataset, batch_size=plan.batch_size, shuffle=True)
    criterion = nn.CrossEntropyLoss() if plan.data.num_classes else nn.MSELoss()

    def train_epoch() -> None:
        total, correct = 0.0, 0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            outputs = net(x)
            loss = criterion(outputs, y)
            loss.backward()
            optimizer.step()
            total += loss.item()
            if plan.data.num_classes:
                correct += (outputs.argmax(dim=1) == y).sum().item()
        print(f"loss {total / len(loader):.4f}  correct {correct}")

    return train_epoch


def bare(plan: Plan, data: Any, net: nn.Module, optimizer: Optimizer, device: torch.device) -> Callable[[], None]:
    """Return an epoch over tensors in memory; uint8 images are normalized batch by batch."""
    inputs, targets = (tensor.to(device) for tensor in data.datasets["train"].tensors)
    criterion = F.cross_entropy if plan.data.num_classes else F.mse_loss

    def train_epoch() -> None:
        for indices in torch.split(torch.randperm(len(inputs), device=device), plan.batch_size):
            x, y = data.on_after_batch_transfer([inputs[indices], targets[indices]], 0)
            optimizer.zero_grad()
            criterion(net(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return train_epoch


LOOPS = {"source": source, "bare": bare}
