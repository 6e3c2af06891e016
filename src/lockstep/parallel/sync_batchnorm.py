"""BatchNorm over the global batch: count, mean and M2 of every rank, merged, so that no world size changes the net.

torch's own SyncBatchNorm runs on GPUs alone; elsewhere stands the same arithmetic in tensor operations.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from lockstep.plan import Plan


def synchronise_batchnorm(plan: Plan, net: nn.Module) -> nn.Module:
    """The net with each BatchNorm replaced, where the plan asks for it and several ranks share a batch.

    Names, parameters and buffers stay what they are.
    """
    if not plan.sync_batchnorm or plan.world_size == 1:
        return net
    if plan.accelerator == "gpu":
        return nn.SyncBatchNorm.convert_sync_batchnorm(net)  # type: ignore[no-any-return, no-untyped-call]
    for parent in [*net.modules()]:
        for name, child in parent.named_children():
            if isinstance(child, _BatchNorm):
                setattr(parent, name, SyncBatchNorm(child))
    return net


class SyncBatchNorm(_BatchNorm):
    """(batch, channels, …) → the same shape, normalised over batch, ranks and all dimensions but the channels.

    A rank may hold another number of samples than its peers, or none. Evaluation is plain BatchNorm's.
    """

    def __init__(self, plain: _BatchNorm) -> None:
        super().__init__(plain.num_features, plain.eps, plain.momentum, plain.affine, plain.track_running_stats)
        self._parameters, self._buffers = plain._parameters, plain._buffers
        self.training = plain.training

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected (batch, channels, …), got {input.dim()} dimensions")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if not self.training:
            return super().forward(input)
        normalised, count, mean, variance = _Normalise.apply(input, self.eps)
        self._follow(count, mean, variance)
        if self.affine:
            normalised = normalised * _along_channels(self.weight, input) + _along_channels(self.bias, input)
        return normalised.to(input.dtype)  # type: ignore[no-any-return]

    @torch.no_grad()
    def _follow(self, count: Tensor, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics, as plain BatchNorm does: with the unbiased variance."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked += 1
        share = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance * (count / (count - 1)), share)


class _Normalise(torch.autograd.Function):
    """(x - mean) / sqrt(variance + eps) with the statistics of all ranks (Ioffe and Szegedy, Batch Normalization).

    M2 is the sum of squared distances from the mean. Ranks' shares are merged by Chan, Golub and LeVeque's formula:
    mean = Σ nᵣ·meanᵣ / Σ nᵣ, and M2 = Σ M2ᵣ + nᵣ·(meanᵣ - mean)². Sums of squares would cancel badly.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        axes = [axis for axis in range(x.dim()) if axis != 1]
        count = torch.tensor([x.numel() // x.shape[1]], dtype=x.dtype, device=x.device)
        mean = x.sum(axes) / count.clamp(min=1)
        m2 = (x - _along_channels(mean, x)).square().sum(axes)
        ours = torch.cat([count, mean, m2])
        everyone = ours.new_empty(dist.get_world_size() * len(ours))
        dist.all_gather_into_tensor(everyone, ours)
        counts, means, m2s = torch.split(everyone.view(-1, len(ours)), [1, len(mean), len(mean)], dim=1)
        count = counts.sum()
        if count <= 1:
            raise ValueError("BatchNorm needs more than one value per channel to train; write a larger batch_size")
        mean = (counts * means).sum(0) / count
        variance = (m2s + counts * (means - mean).square()).sum(0) / count
        inverse = (variance + eps).rsqrt()
        normalised = (x - _along_channels(mean, x)) * _along_channels(inverse, x)
        ctx.save_for_backward(normalised, inverse, count)
        ctx.mark_non_differentiable(count, mean, variance)
        return normalised, count, mean, variance

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor, None]:
        """dx = (g - mean(g) - x̂ · mean(g · x̂)) / sqrt(variance + eps), the means over all ranks' samples."""
        normalised, inverse, count = ctx.saved_tensors
        axes = [axis for axis in range(gradient.dim()) if axis != 1]
        sums = torch.stack([gradient.sum(axes), (gradient * normalised).sum(axes)])
        dist.all_reduce(sums)
        mean, along = (_along_channels(one, gradient) for one in sums / count)
        return (gradient - mean - normalised * along) * _along_channels(inverse, gradient), None


def _along_channels(values: Tensor, like: Tensor) -> Tensor:
    """Shape (channels,) → (1, channels, 1, …), to be combined with `like`."""
    return values.view(1, -1, *[1] * (like.dim() - 2))
