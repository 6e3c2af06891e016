"""Show which rank gets which samples in which epoch, by the sampler that training uses and by DistributedSampler.

Both walk the same permutation. DistributedSampler repeats its first samples until all ranks have equally many.
"""

import textwrap
from dataclasses import dataclass
from itertools import product

import torch
from torch.utils.data import DistributedSampler

from lockstep.base.constraints import NonNegativeInt, PositiveInt
from lockstep.base.text_table import terminal_width
from lockstep.engine.loaders.map_loader import epoch_order
from lockstep.plan.step_plan import batch_count


@dataclass(frozen=True)
class Options:
    """The keys of the subcommand; the samples are the integers from 0 on."""

    devices: PositiveInt = 3
    samples: PositiveInt = 100
    batch_size_per_device: PositiveInt = 2
    epochs: PositiveInt = 2
    seed: NonNegativeInt = 42
    drop_last: bool = False


def lockstep_batches(options: Options, epoch: int, rank: int) -> list[list[int]]:
    """Return the batches of one rank by the sampler of training."""
    batch_size = options.devices * options.batch_size_per_device
    order = epoch_order(options.samples, options.seed, epoch)
    batches = torch.split(order, batch_size)[: batch_count(options.samples, batch_size, options.drop_last)]
    return [ids[rank :: options.devices].tolist() for ids in batches]


def torch_batches(options: Options, epoch: int, rank: int) -> list[list[int]]:
    data = range(options.samples)
    sampler = DistributedSampler(data, options.devices, rank, seed=options.seed, drop_last=options.drop_last)  # type: ignore[arg-type, var-annotated]
    sampler.set_epoch(epoch)
    return [ids.tolist() for ids in torch.split(torch.tensor([*sampler]), options.batch_size_per_device)]


def show(options: Options) -> int:
    print(describe(options, terminal_width()))
    return 0


def describe(options: Options, width: int) -> str:
    """Format two blocks an epoch, with a paragraph for each rank."""
    page = [
        f"{options.samples} samples on {options.devices} ranks, {options.batch_size_per_device} a rank in each batch; "
        "| ends a batch, * marks a repeat"
    ]
    samplers = {"Lockstep": lockstep_batches, f"DistributedSampler(shuffle=True, seed={options.seed})": torch_batches}
    for epoch, (name, batches_of) in product(range(options.epochs), samplers.items()):
        page += ["", f"epoch {epoch}: {name}"]
        seen: set[int] = set()
        counts = []
        for rank in range(options.devices):
            batches = batches_of(options, epoch, rank)
            cells = [" ".join(f"{id}{'*' * (id in seen)}" for id in batch) or "–" for batch in batches]
            page.append(textwrap.fill(f"  rank {rank}: {' | '.join(cells) or '–'}", width, subsequent_indent=" " * 10))
            seen.update(*batches)
            counts.append(sum(map(len, batches)))
        total, left_out = sum(counts), options.samples - len(seen)
        shares = f"{' + '.join(map(str, counts))} = {total} of {options.samples} samples"
        rest = f"; {left_out} left out" if left_out else ""
        page.append(f"  seen: {shares}, {total - len(seen) or 'none'} repeated{rest}")
    return "\n".join(page)
