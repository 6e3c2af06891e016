"""Show which rank gets which samples in which epoch, by the sampler that training uses and by DistributedSampler.

Both walk the same permutation, seeded by `seed` + epoch. Lockstep splits it into global batches and each batch over the
ranks, so every sample is on one rank, once. DistributedSampler repeats the first samples until all ranks have equally
many; those samples count twice.
"""

import textwrap
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

import torch
from torch.utils.data import DistributedSampler

from lockstep.batch_math import batch_count
from lockstep.config_error import require
from lockstep.sampler import epoch_order


@dataclass(frozen=True)
class PartitionOptions:
    """The keys of the subcommand; the samples are the integers from 0 on."""

    devices: int = 3
    samples: int = 100
    batch_size_per_device: int = 2
    epochs: int = 2
    seed: int = 42
    drop_last: bool = False

    def __post_init__(self) -> None:
        for key in ("devices", "samples", "batch_size_per_device", "epochs"):
            require(getattr(self, key) >= 1, key, getattr(self, key), "it must be 1 or more", f"{key}=2, say")
        require(0 <= self.seed < 2**32, "seed", self.seed, "it must be from 0 to 4294967295", "seed=42, say")


def lockstep_batches(options: PartitionOptions, epoch: int, rank: int) -> list[list[str]]:
    """Return the batches of one rank by the sampler of training."""
    batch_size, world = options.devices * options.batch_size_per_device, options.devices
    order = epoch_order(options.samples, options.seed, epoch)
    batches = batch_count(options.samples, batch_size, options.drop_last)
    return [list(map(str, ids[rank::world].tolist())) for ids in torch.split(order, batch_size)[:batches]]


def torch_batches(options: PartitionOptions, epoch: int, rank: int) -> list[list[str]]:
    """Return the batches by DistributedSampler: position p of its padded order is on rank p mod W, * is padding."""
    data: Any = range(options.samples)
    sampler = DistributedSampler[int](data, options.devices, rank, seed=options.seed, drop_last=options.drop_last)
    sampler.set_epoch(epoch)
    positions = range(rank, sampler.total_size, options.devices)
    samples = [
        f"{sample}*" if position >= options.samples else str(sample)
        for position, sample in zip(positions, sampler, strict=True)
    ]
    size = options.batch_size_per_device
    return [samples[start : start + size] for start in range(0, len(samples), size)]


def describe(options: PartitionOptions, width: int) -> str:
    """Format two blocks an epoch, with a paragraph for each rank."""
    page = [
        f"{options.samples} samples on {options.devices} ranks, {options.batch_size_per_device} a rank in each batch; "
        "| ends a batch, * marks a repeat"
    ]
    samplers = {"Lockstep": lockstep_batches, f"DistributedSampler(shuffle=True, seed={options.seed})": torch_batches}
    for epoch, (name, batches) in product(range(options.epochs), samplers.items()):
        ranks = [batches(options, epoch, rank) for rank in range(options.devices)]
        page += ["", f"epoch {epoch}: {name}"]
        for rank, rank_batches in enumerate(ranks):
            text = " | ".join("\xa0".join(batch) or "–" for batch in rank_batches) or "–"
            text = textwrap.fill(f"  rank {rank}: {text}", width, subsequent_indent=" " * 10)
            page.append(text.replace("\xa0", " "))
        samples = [list(chain.from_iterable(rank_batches)) for rank_batches in ranks]
        counts = list(map(len, samples))
        repeats = sum(sample.endswith("*") for sample in chain.from_iterable(samples))
        left_out = options.samples - (sum(counts) - repeats)
        page.append(
            f"  seen: {' + '.join(map(str, counts))} = {sum(counts)} of {options.samples} samples, "
            f"{repeats or 'none'} repeated" + (f"; {left_out} left out" if left_out else "")
        )
    return "\n".join(page)
