"""Gradient averaging by hand: four methods that replace each rank's gradient by the mean over ranks.

DistributedDataParallel does the same during backward. Here it happens after backward, so that each method can be read.
Every rank must call the same method, or all of them block.
"""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lockstep.parallel.fixed_bucket_ddp import no_gradient

Gradients = Sequence[Tensor]


def all_reduce(gradients: Gradients) -> None:
    """Run one all-reduce for each tensor: sum, then divide. The method of textbooks; many small messages."""
    for gradient in gradients:
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()


def bucket(gradients: Gradients) -> None:
    """Run one all-reduce for all: the gradients are copied into one flat buffer and back."""
    flat = flatten(gradients)
    dist.all_reduce(flat)
    unflatten(flat / dist.get_world_size(), gradients)


def ring(gradients: Gradients) -> None:
    """Sum the flat buffer round a ring of neighbours."""
    flat = flatten(gradients)
    ring_all_reduce(flat)
    unflatten(flat / dist.get_world_size(), gradients)


def reduce_broadcast(gradients: Gradients) -> None:
    """Sum at rank 0 and broadcast, as a parameter server does: rank 0's connection is the limit."""
    for gradient in gradients:
        dist.reduce(gradient, dst=0)
        if dist.get_rank() == 0:
            gradient /= dist.get_world_size()
        dist.broadcast(gradient, src=0)


BY_HAND: dict[str, Callable[[Gradients], None]] = {
    method.__name__: method for method in (all_reduce, bucket, ring, reduce_broadcast)
}


def average_gradients(method: str, module: nn.Module, finds_unused: bool) -> None:
    """Average the gradients of a module over ranks, for the same parameters as DistributedDataParallel.

    A parameter that has a gradient on no rank keeps none, if the strategy has `find_unused_parameters`.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if finds_unused and parameters:
        used = torch.tensor([parameter.grad is not None for parameter in parameters], device=parameters[0].device)
        dist.all_reduce(counts := used.long())
        parameters = [parameter for parameter, count in zip(parameters, counts.tolist(), strict=True) if count]
    for parameter in parameters:
        if parameter.grad is None:
            if not finds_unused:
                raise no_gradient()
            parameter.grad = torch.zeros_like(parameter)
    if gradients := [parameter.grad for parameter in parameters if parameter.grad is not None]:
        BY_HAND[method](gradients)


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


def flatten(tensors: Gradients) -> Tensor:
    """Return all numbers in one row."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def unflatten(flat: Tensor, tensors: Gradients) -> None:
    """Copy the row back into the tensors."""
    for chunk, tensor in zip(torch.split(flat, [tensor.numel() for tensor in tensors]), tensors, strict=True):
        tensor.copy_(chunk.view_as(tensor))
