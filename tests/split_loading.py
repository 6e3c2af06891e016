"""A SplitLoader without a plan: batches of 7 in epochs by seed 1, evaluation batches of 1024."""

from types import SimpleNamespace
from typing import Any, Literal

import torch

from lockstep.batch_math import batch_count
from lockstep.data.samples import SampleData
from lockstep.data.tensors import TensorData
from lockstep.loaders.rank_loader import RankSlice
from lockstep.loaders.split_loaders import SplitLoader

CPU = torch.device("cpu")


def split_loader(
    data: TensorData | SampleData,
    *,
    stage: Literal["train", "val"] = "train",
    rank: int = 0,
    world: int = 1,
    begin: tuple[int, int] = (0, 0),
    precision: str = "32-true",
    device: torch.device = CPU,
) -> SplitLoader:
    """A loader in the epoch and at the batch where training begins."""
    batches = batch_count(len(data.train), 7)
    steps = SimpleNamespace(epoch_batches=batches, samples_of=lambda _, size: size, samples_in_step=lambda *_: 7)
    samples = getattr(data, "samples", "pairs")
    plan: Any = SimpleNamespace(seed=1, order_seed=1, batch_size=7, steps=steps, precision=precision)
    plan.task, plan.strategy = SimpleNamespace(samples=samples), SimpleNamespace(devices=lambda _: [device])
    loader = SplitLoader(plan, data, stage, RankSlice(rank, world))
    loader.begin = begin
    loader.set_epoch(begin[0])
    return loader
