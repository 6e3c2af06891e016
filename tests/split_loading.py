"""A loader of a plain net's data without a plan: batches of 7 in epochs of a seed, evaluation batches of 1024."""

from typing import Any

import torch
from torch.utils.data import DataLoader

from lockstep.data.samples import Splits
from lockstep.data.tensors import CPU, prepare_for_net
from lockstep.loaders.map_loader import MapLoader
from lockstep.loaders.rank_loader import RankSlice
from lockstep.sampler import EVALUATION_BATCH


def split_loader(
    splits: Splits,
    *,
    stage: str = "train",
    shuffle: bool = False,
    rank: int = 0,
    world: int = 1,
    begin: tuple[int, int] = (0, 0),
    seed: int = 1,
    device: torch.device = CPU,
) -> MapLoader:
    """Return a loader in the epoch and at the batch where training begins; tensors become float32."""
    training = stage == "train"
    dataset = prepare_for_net(splits.datasets, device, torch.float32)[stage]
    user_loader: DataLoader[Any] = DataLoader(dataset, batch_size=7, shuffle=training or shuffle, **splits.loader)
    loader = MapLoader(user_loader, RankSlice(rank, world), seed, training, None)
    loader.begin, loader.evaluation_batch = begin, 1 if training else EVALUATION_BATCH
    loader.set_epoch(begin[0])
    return loader
