"""The loops that the engines are compared with: `source` as the sources write it, `bare` as a plain loop over tensors.

Both train the plan's net on its data in one process, keep no record, and save nothing.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch._dynamo  # the first optimizer step would import it while timed; with Lightning it is there
import torch.nn.functional as F
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Subset
from torchvision import transforms
from torchvision.datasets import MNIST

from bench.runs import BenchPayload
from lockstep import data, schemas
from lockstep.data.tensors import Split
from lockstep.launch.topology import RankContext
from lockstep.optimizers import create_optimizer
from lockstep.plan import Plan
from lockstep.session.task import create_net
from lockstep.sums.phases import synchronize


def run(payload: BenchPayload, context: RankContext) -> float:
    """Train by the loop called `payload.subject` and return the seconds; the launcher calls it."""
    plan = payload.plan
    splits = data.load(plan.data)
    device, *_ = plan.strategy.devices(plan)
    net = create_net(plan, splits).to(memory_format=torch.contiguous_format).to(device)
    train_epoch = LOOPS[payload.subject](plan, splits.train, net, create_optimizer(plan.optimizer, net), device)
    began = time.perf_counter()
    for _ in range(plan.max_epochs):
        train_epoch()
    synchronize(device)
    return time.perf_counter() - began


def source(plan: Plan, train: Split, net: nn.Module, optimizer: Optimizer, device: torch.device) -> Callable[[], None]:
    """Return an epoch as the sources write it. (Their SimpleCNN has biases in front of BatchNorm too.)"""
    dataset: Any = train.as_dataset()
    if isinstance(plan.data, schemas.MNIST):
        normalize = transforms.Normalize((plan.data.mean,), (plan.data.std,))
        mnist = MNIST(plan.data.root, download=True, transform=transforms.Compose([transforms.ToTensor(), normalize]))
        dataset = Subset(mnist, range(len(train)))
    loader = DataLoader(dataset, batch_size=plan.batch_size, shuffle=True)
    criterion = nn.CrossEntropyLoss() if plan.data.classes else nn.MSELoss()

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
            if plan.data.classes:
                correct += (outputs.argmax(dim=1) == y).sum().item()
        print(f"loss {total / len(loader):.4f}  correct {correct}")

    return train_epoch


def bare(plan: Plan, train: Split, net: nn.Module, optimizer: Optimizer, device: torch.device) -> Callable[[], None]:
    """Return an epoch over tensors in memory; uint8 images are normalized batch by batch."""
    train = replace(train, inputs=train.inputs.to(device), targets=train.targets.to(device))
    criterion = F.cross_entropy if plan.data.classes else F.mse_loss

    def train_epoch() -> None:
        for indices in torch.split(torch.randperm(len(train), device=device), plan.batch_size):
            x, y = train.as_float(train[indices], torch.float32)
            optimizer.zero_grad()
            criterion(net(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return train_epoch


LOOPS = {"source": source, "bare": bare}
