"""An all-reduce by hand, round a ring of neighbours: a primitive of the tour."""

import torch
import torch.distributed as dist
from torch import Tensor


def ring_all_reduce(tensor: Tensor) -> None:
    """Replace a contiguous tensor, of any size, on every rank by its sum over ranks, in 2(W-1) steps.

    The tensor is split into W chunks. Reduce-scatter: in each of W-1 steps every rank sends a chunk to its right
    neighbour and adds the chunk from its left neighbour to its own; then rank r has the complete sum of chunk r+1.
    All-gather: the complete chunks go round once more, and replace the others. Each rank sends 2(W-1)/W of the
    tensor, for every W (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms).

    Three ranks a, b, c and their chunks 0, 1, 2:

                  rank 0                 rank 1                 rank 2
        start     a0     a1    a2        b0    b1     b2        c0    c1    c2
        step 1    a0     a1    a2+c2     a0+b0 b1     b2        c0    b1+c1 c2
        step 2    a0     all   a2+c2     a0+b0 b1     all       all   b1+c1 c2
        step 3    all    all   a2+c2     a0+b0 all    all       all   b1+c1 all
        step 4    all    all   all       all   all    all       all   all   all
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    chunks = tensor.view(-1).tensor_split(world)
    for step in range(world - 1):
        arrived = _shift_right(chunks[(rank - step) % world], like=chunks[(rank - step - 1) % world])
        chunks[(rank - step - 1) % world].add_(arrived)
    for step in range(world - 1):
        arrived = _shift_right(chunks[(rank + 1 - step) % world], like=chunks[(rank - step) % world])
        chunks[(rank - step) % world].copy_(arrived)


def _shift_right(chunk: Tensor, like: Tensor) -> Tensor:
    """Send a chunk to the right while receiving one, of the size of `like`, from the left."""
    rank, world = dist.get_rank(), dist.get_world_size()
    arrived = torch.empty_like(like)
    transfers = [dist.P2POp(dist.isend, chunk, (rank + 1) % world), dist.P2POp(dist.irecv, arrived, (rank - 1) % world)]
    transfers = [transfer for transfer in transfers if transfer.tensor.numel()]
    for transfer in dist.batch_isend_irecv(transfers) if transfers else ():
        transfer.wait()
    return arrived
