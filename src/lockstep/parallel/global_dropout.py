"""Dropout that no world size changes: the mask of the global batch is drawn from (seed, step, layer), and sliced.

A step here is a global batch, counted from the first of the run; with accumulation an optimizer step has several.

Every rank draws the whole mask and keeps the part of its own samples: W times the drawing, no message, and a net with
dropout computes what it computes in one process. Plain dropout (Srivastava et al., 2014) draws anew on each rank.
"""

import hashlib
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from lockstep.config_error import require
from lockstep.private_api.torch import DROPOUT

if TYPE_CHECKING:
    from lockstep.plan import Plan

CHANNELWISE: tuple[type[nn.Module], ...] = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class GlobalMasks:
    """One for a net: which global batch is under way, and the masks of its layers. `begin` before each batch."""

    def __init__(self, plan: "Plan", rank: int) -> None:
        self.plan, self.rank = plan, rank
        self.replicas = plan.strategy.layout(plan.devices).replicas
        self.begin(0, 0)

    def begin(self, epoch: int, batch: int) -> None:
        """Global batch `batch` of epoch `epoch`, both from 0, is next."""
        self.epoch, self.batch = epoch, batch

    @property
    def samples(self) -> int:
        """Of the global batch."""
        return min(self.plan.batch_size, self.plan.data.train_samples - self.batch * self.plan.batch_size)

    def mask(self, layer: int, shape: tuple[int, ...], p: float) -> Tensor:
        """What this rank multiplies its samples by: 0, or 1/(1-p) with probability 1-p. Shape (own samples, *shape).

        Drawn on the CPU in float32 whatever the net computes in, so that every device and precision has the same mask.
        """
        step = self.plan.steps.batches_before(self.epoch, self.batch)
        key = f"{self.plan.seed} {step} {layer}".encode()
        seed = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest())
        generator = torch.Generator().manual_seed(seed)
        uniform = torch.rand((self.samples, *shape), generator=generator, dtype=torch.float32)
        return (uniform[self.rank :: self.plan.world_size] >= p).double() / (1 - p)

    def __deepcopy__(self, _: object) -> "GlobalMasks":
        """Replicas of the net ask the same masks."""
        return self


class GlobalDropout(nn.Dropout):
    """(samples, …) → the same shape. `channelwise`: a channel is kept or dropped as one, as Dropout2d does."""

    def __init__(self, plain: nn.Dropout, layer: int, masks: GlobalMasks) -> None:
        super().__init__(plain.p)
        self.layer, self.masks = layer, masks
        self.channelwise = type(plain) in CHANNELWISE
        self.replica = 0
        self.training = plain.training

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return input
        shape = tuple(input.shape[1:])
        if self.channelwise:
            shape = (*shape[:1], *[1] * len(shape[1:]))
        mask = self.masks.mask(self.layer, shape, self.p)
        if (replicas := self.masks.replicas) > 1:  # each has a chunk of them
            mask = mask.chunk(replicas)[input.device.index if input.is_cuda else self.replica]
        return input * mask.to(input)


def convert_dropout(plan: "Plan", rank: int, net: nn.Module) -> GlobalMasks:
    """Replace the net's dropout. Return the masks, which are to be told which batch is next."""
    masks = GlobalMasks(plan, rank)
    layers = (
        (parent, name, child)
        for parent in [*net.modules()]
        for name, child in parent.named_children()
        if isinstance(child, DROPOUT)
    )
    for layer, (parent, name, child) in enumerate([*layers]):
        kind = type(child)
        reason = f"the net has {kind.__name__}, which does more than drop"
        sliceable = kind is nn.Dropout or kind in CHANNELWISE
        require(sliceable, "dropout_rng", "global", reason, "dropout_rng=per_rank")
        setattr(parent, name, GlobalDropout(child, layer, masks))
    return masks
