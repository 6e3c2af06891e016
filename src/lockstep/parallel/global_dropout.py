"""Dropout that is independent of the world size: the mask of the global batch is drawn from (seed, batch, layer).

Every rank draws the whole mask and takes the rows of its own samples: W times the drawing, no message, and a net with
dropout computes the same as in one process. Plain dropout (Srivastava et al., 2014) draws anew on each rank.
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
    """The masks of all layers of a net for a global batch. `epoch` and `batch`, from 0, are to be set before it."""

    def __init__(self, plan: "Plan", rank: int) -> None:
        self.plan, self.rank = plan, rank
        self.replicas = plan.strategy.layout(plan.devices).replicas
        self.epoch = self.batch = 0

    def mask(self, layer: int, shape: tuple[int, ...], p: float) -> Tensor:
        """Return 0, or 1/(1-p) with probability 1-p, for this rank's samples (samples, *shape), in every dtype."""
        plan = self.plan
        samples = min(plan.batch_size, plan.data.train_samples - self.batch * plan.batch_size)
        key = f"{plan.seed} {self.epoch * plan.steps.epoch_batches + self.batch} {layer}".encode()
        seed = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest())
        generator = torch.Generator().manual_seed(seed)
        uniform = torch.rand((samples, *shape), generator=generator, dtype=torch.float32)
        return (uniform[self.rank :: plan.world_size] >= p).double() / (1 - p)


class GlobalDropout(nn.Dropout):
    """Keeps the shape (samples, …). `channelwise`: each channel is dropped as a whole, as by Dropout2d."""

    def __init__(self, dropout: nn.Dropout, layer: int, masks: GlobalMasks) -> None:
        super().__init__(dropout.p)
        self.layer, self.masks, self.training = layer, masks, dropout.training
        self.channelwise = type(dropout) in CHANNELWISE
        self.replica = 0

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return input
        shape = tuple(input.shape[1:])
        if self.channelwise:
            shape = (*shape[:1], *[1] * len(shape[1:]))
        mask = self.masks.mask(self.layer, shape, self.p)
        if (replicas := self.masks.replicas) > 1:  # each computes a chunk of the samples
            mask = mask.chunk(replicas)[input.device.index if input.is_cuda else self.replica]
        return input * mask.to(input)


def convert_dropout(plan: "Plan", rank: int, net: nn.Module) -> GlobalMasks:
    """Replace the dropout layers of a net, or raise a ConfigError if one does more than dropout; return their masks."""
    masks = GlobalMasks(plan, rank)
    children = [(parent, *child) for parent in net.modules() for child in parent.named_children()]
    layers = [child for child in children if isinstance(child[2], DROPOUT)]
    for layer, (parent, name, dropout) in enumerate(layers):
        kind = type(dropout)
        reason = f"the net has {kind.__name__}, which does more than drop"
        fits = kind is nn.Dropout or kind in CHANNELWISE
        require(fits, "dropout_rng", "global", reason, "dropout_rng=per_rank")
        setattr(parent, name, GlobalDropout(dropout, layer, masks))  # type: ignore[arg-type]
    return masks
