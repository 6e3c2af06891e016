"""An evaluation: this rank's share of a split through the net, and the sums of it."""

from typing import Literal

import torch
from torch import Tensor

from lockstep.data.loader import create_loader
from lockstep.data.samples import SampleSplit
from lockstep.data.tensors import Split
from lockstep.parallel import broadcast_buffers
from lockstep.raw.precision import Precision
from lockstep.sampler import ShardSampler, evaluation_batch
from lockstep.session import Session
from lockstep.strategies import Wrapped
from lockstep.sums.running import batch_stats


@torch.inference_mode()
def evaluate(
    session: Session, wrapped: Wrapped, precision: Precision, stage: Literal["val", "test"], most: int | None = None
) -> Tensor:
    """`EvaluationSums.totals` of this rank, over a split whose samples the ranks share.

    Args:
        most: batches, if not all.
    """
    split: Split | SampleSplit = getattr(session.data, stage)
    plan, context, objective = session.plan, session.context, session.plan.objective
    wrapped.net.eval()
    broadcast_buffers(wrapped.net)
    samples, size = plan.samples_of(stage, len(split)), evaluation_batch(plan.batch_size)
    samples = samples if most is None else min(samples, most * size)
    sampler = ShardSampler(samples, size, rank=context.rank, world_size=context.world_size)
    sums = session.begin_evaluation(stage)
    for inputs, targets, _ids in create_loader(session.data, split, sampler, session.device, precision.dtype):
        with precision.autocast():
            outputs = wrapped.evaluate(inputs)
            stats = batch_stats(objective, objective.loss_sum(outputs, targets), outputs, targets)
        sums.add(stats, outputs, targets, inputs)
    return sums.totals
