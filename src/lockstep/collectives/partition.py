"""Which rank gets which samples in which epoch: by the sampler that training uses, and by torch's DistributedSampler.

Both walk the same permutation, seeded by `seed` + epoch. Ours cuts it into global batches and each batch among the
ranks, so every sample is on one rank, once. DistributedSampler repeats the first samples until all ranks have equally
many, so that they make equally many steps; those samples count twice.
"""

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from torch.utils.data import DistributedSampler

from lockstep.config_error import require
from lockstep.sampler import ShardSampler

Batches = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Partition:
    """`samples` are the integers from 0 on."""

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

    @property
    def batch_size(self) -> int:
        """Of the global batch."""
        return self.devices * self.batch_size_per_device


def ours(wanted: Partition, epoch: int) -> list[Batches]:
    """For each rank its batches, from the sampler of training."""
    shares: list[Batches] = []
    for rank in range(wanted.devices):
        sampler = ShardSampler(
            wanted.samples,
            wanted.batch_size,
            rank=rank,
            world_size=wanted.devices,
            seed=wanted.seed,
            drop_last=wanted.drop_last,
        )
        sampler.set_epoch(epoch)
        shares.append([batch.tolist() for batch in sampler])
    return shares


def distributed_sampler(wanted: Partition, epoch: int) -> list[list[int]]:
    """For each rank its samples, as torch gives them."""
    shares = []
    for rank in range(wanted.devices):
        sampler: DistributedSampler[int] = DistributedSampler(
            range(wanted.samples),  # type: ignore[arg-type]
            num_replicas=wanted.devices,
            rank=rank,
            seed=wanted.seed,
            drop_last=wanted.drop_last,
        )
        sampler.set_epoch(epoch)
        shares.append([int(sample) for sample in sampler])
    return shares


def repeats(shares: Sequence[Sequence[int]]) -> list[list[bool]]:
    """Which places of which rank hold a sample that came before, where position p of the order is rank p % W's."""
    seen: set[int] = set()
    marks: list[list[bool]] = [[] for _ in shares]
    for position in range(max(map(len, shares))):
        for share, mark in zip(shares, marks, strict=True):
            if position < len(share):
                mark.append(share[position] in seen)
                seen.add(share[position])
    return marks


def text(wanted: Partition, width: int) -> str:
    """The page: two blocks an epoch, a paragraph a rank."""
    lines = [
        f"{wanted.samples} samples on {wanted.devices} rank{'s' if wanted.devices > 1 else ''}, "
        f"{wanted.batch_size_per_device} a rank in each batch; | ends a batch, * marks a repeat"
    ]
    for epoch in range(wanted.epochs):
        shares, theirs = ours(wanted, epoch), distributed_sampler(wanted, epoch)
        lines += ["", f"epoch {epoch}: Lockstep"]
        lines += [paragraph(rank, " | ".join(map(joined, share)), width) for rank, share in enumerate(shares)]
        lines += ["  " + sentence(wanted, shares)]
        lines += ["", f"epoch {epoch}: DistributedSampler(shuffle=True, seed={wanted.seed})"]
        marks = repeats(theirs)
        lines += [
            paragraph(rank, " | ".join(cut(share, marks[rank], wanted.batch_size_per_device)), width)
            for rank, share in enumerate(theirs)
        ]
        lines += ["  " + their_sentence(wanted, theirs)]
    return "\n".join(lines)


def joined(batch: Sequence[int]) -> str:
    return " ".join(map(str, batch)) or "–"


def cut(share: Sequence[int], marks: Sequence[bool], size: int) -> list[str]:
    """The batches that a DataLoader would make of a share."""
    shown = [f"{sample}{'*' if repeat else ''}" for sample, repeat in zip(share, marks, strict=True)]
    return [" ".join(shown[start : start + size]) for start in range(0, len(shown), size)]


def paragraph(rank: int, samples: str, width: int) -> str:
    head = f"  rank {rank}: "
    whole = (samples or "–").replace(" ", "\xa0").replace("\xa0|\xa0", "\xa0| ")  # lines break between batches only
    filled = textwrap.fill(whole, width, initial_indent=head, subsequent_indent=" " * len(head))
    return filled.replace("\xa0", " ")


def sentence(wanted: Partition, shares: Sequence[Batches]) -> str:
    """How many each rank sees, and whether each sample is somewhere, once."""
    flat = [[sample for batch in share for sample in batch] for share in shares]
    times = Counter(sample for share in flat for sample in share)
    if not times:
        return seen(wanted, flat, "no full batch")
    once = max(times.values()) == 1 and times.keys() <= set(range(wanted.samples))
    return seen(
        wanted, flat, "each exactly once, on exactly one rank" if once else "WRONG: some are seen more than once"
    )


def their_sentence(wanted: Partition, shares: Sequence[Sequence[int]]) -> str:
    return seen(wanted, shares, f"{sum(map(sum, repeats(shares)))} repeated")


def seen(wanted: Partition, shares: Sequence[Sequence[int]], says: str) -> str:
    counts = [len(share) for share in shares]
    left_out = wanted.samples - len({sample for share in shares for sample in share})
    rest = f"; {left_out} left out" if left_out else ""
    return f"seen: {' + '.join(map(str, counts))} = {sum(counts)} of {wanted.samples} samples, {says}{rest}"
