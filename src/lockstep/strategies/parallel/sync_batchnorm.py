"""BatchNorm over the global batch: count, mean and M2 of every rank are merged, so that results fit any world size.

torch's SyncBatchNorm runs on GPUs alone, and gives a rank without samples no gradient.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.base.private_api.torch import BATCHNORM


def convert_batchnorm(net: nn.Module) -> nn.Module:
    """Make each BatchNorm of a net a SyncBatchNorm, in place, also on one rank: torch's kernel adds otherwise."""
    for module in net.modules():
        if isinstance(module, BATCHNORM):
            module.__class__ = SyncBatchNorm
    return net


class SyncBatchNorm(nn.BatchNorm1d):
    """Normalises (batch, channels, …) over all but the channels, and over ranks, of which some may have no samples.

    is_counted: whether the samples of this rank are part of the statistics; see `uncounted`.
    """

    is_counted: ClassVar[bool] = True

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected (batch, channels, …), got {input.dim()} dimensions")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if not self.training:
            return super().forward(input)
        outputs, count, mean, variance = _Normalize.apply(input, self.weight, self.bias, self.eps, self.is_counted)
        self._update_running_stats(count, mean, variance)
        return outputs  # type: ignore[no-any-return]

    @torch.no_grad()
    def _update_running_stats(self, count: Tensor, mean: Tensor, variance: Tensor) -> None:
        """Update the running statistics as plain BatchNorm does: with the unbiased variance."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked += 1
        weight = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, weight)
        self.running_var.lerp_(variance * (count / (count - 1)), weight)


@contextmanager
def uncounted() -> Iterator[None]:
    """Leave this rank's samples out of all statistics: they are another rank's, in a batch of weight 0."""
    SyncBatchNorm.is_counted = False
    try:
        yield
    finally:
        SyncBatchNorm.is_counted = True


class _Normalize(torch.autograd.Function):
    """Returns w · (x - mean) / sqrt(variance + eps) + b, with the statistics of all ranks (Ioffe and Szegedy, 2015).

    M2 is the sum of squared distances from the mean. Ranks are merged by the formula of Chan, Golub and LeVeque:
    mean = Σ nᵣ·meanᵣ / Σ nᵣ, and M2 = Σ M2ᵣ + nᵣ·(meanᵣ - mean)². Sums of squares would cancel badly. Products are in
    the order of torch's kernel, so that rounding differs in the sums alone.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, is_counted: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        axes = _reduced_axes(x)
        count = torch.tensor([x.numel() // x.shape[1] * is_counted], dtype=wide.dtype, device=x.device)
        mean = wide.sum(axes) / count.clamp(min=1)
        m2 = (wide - _per_channel(mean, x)).square().sum(axes)
        local = torch.cat([count, mean, m2])
        gathered = _all_gather(local if is_counted else torch.zeros_like(local))
        counts, means, m2s = torch.split(gathered, [1, len(mean), len(mean)], dim=1)
        count = counts.sum()
        if count <= 1:
            raise ValueError("BatchNorm needs more than one value per channel to train; write a larger batch_size")
        mean = (counts * means).sum(0) / count
        variance = (m2s + counts * (means - mean).square()).sum(0) / count
        outputs = F.batch_norm(x, mean, variance, weight, bias, training=False, eps=eps)
        ctx.save_for_backward(x, weight, mean, 1 / (variance + eps).sqrt(), count)
        ctx.is_counted = is_counted
        ctx.mark_non_differentiable(count, mean, variance)
        return outputs, count, mean, variance

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """Return dx = (g - mean(g) - (x - mean) · mean(g · (x - mean)) / σ²) · w / σ; means are over all ranks."""
        x, weight, mean, inverse, count = ctx.saved_tensors
        axes = _reduced_axes(x)
        wide, centred = gradient.to(mean.dtype), x.to(mean.dtype) - _per_channel(mean, x)
        sums = torch.stack([wide.sum(axes), (wide * centred).sum(axes)])
        total, along = _all_gather(sums.flatten()).sum(0).view_as(sums)
        if not ctx.is_counted:  # neither do the layers below get a gradient from this rank
            zeros = None if weight is None else torch.zeros_like(weight)
            return torch.zeros_like(x), zeros, zeros, None, None
        slope = _per_channel(along * inverse * inverse / count, x)
        dx = (wide - _per_channel(total / count, x) - centred * slope) * _per_channel(inverse, x)
        if weight is None:
            return dx.to(x.dtype), None, None, None, None
        return (dx * _per_channel(weight, x)).to(x.dtype), sums[1] * inverse, sums[0], None, None


def _all_gather(values: Tensor) -> Tensor:
    """Return the values (n,) of all ranks, shape (ranks, n)."""
    if not dist.is_initialized():
        return values[None]
    gathered = values.new_empty(dist.get_world_size(), len(values))
    dist.all_gather([*gathered], values)
    return gathered


def _reduced_axes(x: Tensor) -> list[int]:
    return [axis for axis in range(x.dim()) if axis != 1]


def _per_channel(values: Tensor, like: Tensor) -> Tensor:
    """Return values (channels,) in shape (1, channels, 1, …), to be broadcast with `like`."""
    return values.view(1, -1, *[1] * (like.dim() - 2))
