"""The baselines: `bare`, a plain loop over tensors, and `stock`, Lightning's own Trainer.

Both train the module of a plan on its data in one process, without validation and checkpoints.
"""

import time

import lightning.pytorch as pl
import torch
import torch._dynamo  # the first optimizer step would import it while timed; with Lightning it is there
import torch.nn.functional as F
from lightning.pytorch.callbacks import Timer
from lightning.pytorch.loggers import TensorBoardLogger

from bench.workloads import BenchPayload
from lockstep.engine import silence_warnings
from lockstep.engine.loaders.source import create_data, create_module
from lockstep.engine.phases import synchronize
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan


def run(payload: BenchPayload, context: RankContext) -> float:
    """Train by a baseline, and return the seconds; the launcher calls it."""
    return BASELINES[payload.baseline](payload.plan)


def bare(plan: Plan) -> float:
    """Train by a loop over tensors in memory; uint8 images are normalized batch by batch."""
    data, module = create_data(plan.data, plan.seed), create_module(plan.model, plan.seed)
    data.setup("fit")
    device, *_ = plan.strategy.devices(plan)
    net = module.net.to(device)
    optimizer, criterion = module.optimizer(net.parameters()), F.cross_entropy if plan.data.num_classes else F.mse_loss
    inputs, targets = (tensor.to(device) for tensor in data.datasets["train"].tensors)
    began = time.perf_counter()
    for _ in range(plan.max_epochs):
        for indices in torch.split(torch.randperm(len(inputs), device=device), plan.batch_size):
            x, y = data.on_after_batch_transfer([inputs[indices], targets[indices]], 0)
            optimizer.zero_grad()
            criterion(net(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    synchronize(device)
    return time.perf_counter() - began


def stock(plan: Plan) -> float:
    silence_warnings()
    data, module, timer = create_data(plan.data, plan.seed), create_module(plan.model, plan.seed), Timer()
    data.batch_size = plan.batch_size
    trainer = pl.Trainer(
        max_epochs=plan.max_epochs,
        accelerator=plan.accelerator,
        logger=TensorBoardLogger(plan.run_dir),
        log_every_n_steps=plan.log_every_n_steps,
        limit_val_batches=0,
        callbacks=[timer],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, data)
    return timer.time_elapsed("train")


BASELINES = {"bare": bare, "stock": stock}
