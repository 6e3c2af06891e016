"""Which rank sees which sample, when: one order for every engine, strategy and number of ranks.

Global batch k is positions k·B … (k+1)·B of the epoch's order, and rank r of W takes positions r, r+W, r+2W, … *of that
batch*: so every world size sees the same samples at the same step, and a ragged last batch is only shorter.
"""

import torch
from torch import Tensor


def epoch_order(samples: int, seed: int, epoch: int) -> Tensor:
    """Return the order of one epoch: a permutation of 0 … samples-1, shape (samples,), int64."""
    return torch.randperm(samples, generator=torch.Generator().manual_seed(seed + epoch))
