"""BatchNorm over the global batch (`sync_batchnorm=true`): its sums are of all ranks."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class SumOverRanks(torch.autograd.Function):
    """The sum of each rank's values; of a value's gradient, too, since it is part of the sum on every rank.

    That of torch.distributed.nn.functional is deprecated.
    """

    @staticmethod
    def forward(_: Any, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        return SumOverRanks.forward(context, gradients[0])


class SyncBatchNorm(nn.BatchNorm1d):
    """Normalizes by the mean and the variance of the global batch: sums over ranks, through which autograd passes."""

    trainer: Any

    def _check_input_dim(self, input: Tensor) -> None:
        """Take inputs of any number of dimensions."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        axes, shape = [axis for axis in range(x.dim()) if axis != 1], [1, -1, *[1] * (x.dim() - 2)]
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        count, *_ = sums = self.over_ranks(torch.cat([wide.new_tensor([x.numel() / x.shape[1]]), wide.sum(axes)]))
        mean = sums[1:] / count
        centred = wide - mean.view(shape)
        variance = self.over_ranks(centred.square().sum(axes)) / count
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.num_batches_tracked += 1
            factor = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean.detach(), factor)
            self.running_var.lerp_(variance.detach() * (count / (count - 1)), factor)
        outputs = centred / (variance + self.eps).sqrt().view(shape)
        if self.affine:
            outputs = outputs * self.weight.view(shape) + self.bias.view(shape)
        return outputs.to(x.dtype)  # type: ignore[no-any-return]

    def over_ranks(self, sums: Tensor) -> Tensor:
        counted = sums if self.trainer.has_samples else sums * 0.0  # a rank without samples computes another's
        return SumOverRanks.apply(counted) if dist.is_initialized() else counted
