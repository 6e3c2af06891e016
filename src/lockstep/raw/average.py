"""The average of gradients over ranks: by DistributedDataParallel during backward, or by hand after it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.base.private_api.torch import BATCHNORM

if TYPE_CHECKING:
    from lockstep.raw.trainer import Trainer


class Step(nn.Module):
    """A module whose forward is its training step, as DistributedDataParallel needs it.

    It adds gradients in buckets of 1 MiB, then 25 MiB, which it fills in the order of the parameters: here from the
    last to the first. More than two numbers have several sums, so the buckets decide the last bits. After one step it
    would fill them anew, but not with find_unused_parameters, of which torch warns if no parameter is unused.
    """

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.last_to_first = nn.ParameterList([*module.parameters()][::-1])
        self.unused = nn.Parameter(
            torch.zeros(1, dtype=torch.float16)
        )  # float16, so that no bucket has it beside others
        self.module = module

    def forward(self, *arguments: Any) -> Any:
        return self.module.training_step(*arguments)


def choose_average(trainer: "Trainer") -> None:
    """Choose how gradients are averaged over ranks (`engine.gradient_sync`), and which buffers rank 0 sends."""
    module, sync = trainer.module, trainer.config.engine.gradient_sync
    parameters = [*module.parameters()]
    trainer.training_step, trainer.average = module.training_step, lambda: None
    sends: bool | None = trainer.config.strategy.get("broadcast_buffers")
    layers = [] if sends is False or trainer.world_size == 1 else module.modules()
    layers = [layer for layer in layers if sends or not isinstance(layer, BATCHNORM)]
    trainer.shared_buffers = [(each, name) for each in layers for name, _ in each.named_buffers(recurse=False)]
    if not (dist.is_initialized() and module.automatic_optimization):
        return
    if sync == "ddp":
        devices: Any = [trainer.device] if trainer.device.type == "cuda" else None
        options: dict[str, Any] = {"find_unused_parameters": True, "gradient_as_bucket_view": True}
        trainer.training_step = DistributedDataParallel(Step(module).to(trainer.device), devices, **options)
        trainer.training_step.broadcast_buffers = False  # `run` sends them
        parameters = [each for each in parameters if not each.requires_grad]  # not in DDP, and they may thaw
        sync = "all_reduce"
    trainer.average = lambda: average(METHODS[sync], [each for each in parameters if each.requires_grad])


def average(method: Callable[[Sequence[Tensor]], None], parameters: Sequence[nn.Parameter], earlier: Any = ()) -> None:
    """Average over ranks the gradients of a backward pass plus `earlier` ones; without any, a parameter keeps those."""
    if not parameters:
        return
    used = torch.tensor([each.grad is not None for each in parameters], device=parameters[0].device).long()
    dist.all_reduce(used)
    gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
    earlier = earlier or [None] * len(parameters)
    for gradient, before in zip(gradients, earlier, strict=True):
        if before is not None:
            gradient += before
    if used.any():
        method(gradients)
    for parameter, gradient, before, count in zip(parameters, gradients, earlier, used.tolist(), strict=True):
        parameter.grad = gradient if count else before


def all_reduce(gradients: Sequence[Tensor]) -> None:
    """Average each gradient by a message for each tensor: sum, then divide."""
    for gradient in gradients:
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()


def reduce_broadcast(gradients: Sequence[Tensor]) -> None:
    """Rank 0 adds and sends the mean to all, as a parameter server: its connection is the limit."""
    for gradient in gradients:
        dist.reduce(gradient, dst=0)
        gradient /= dist.get_world_size()
        dist.broadcast(gradient, src=0)


def bucket(gradients: Sequence[Tensor], add: Callable[[Tensor], Any] = dist.all_reduce) -> None:
    """Average all gradients by one message: they are copied into one row and back."""
    row = torch.cat([gradient.reshape(-1) for gradient in gradients]) * (1 / dist.get_world_size())
    add(row)
    for part, gradient in zip(row.split([each.numel() for each in gradients]), gradients, strict=True):  # type: ignore[no-untyped-call]
        gradient.copy_(part.view_as(gradient))


def buckets(gradients: Sequence[Tensor]) -> None:
    """Rows of 1 MiB and then 25 MiB, from the last gradient to the first: what DistributedDataParallel does."""
    rows: list[list[Tensor]] = [[]]
    for gradient in gradients[::-1]:
        rows[-1].append(gradient)
        if sum(each.nbytes for each in rows[-1]) >= (1 if len(rows) == 1 else 25) * 2**20:
            rows.append([])
    for row in filter(None, rows):
        bucket(row)


def ring(gradients: Sequence[Tensor]) -> None:
    bucket(gradients, ring_sum)


def ring_sum(row: Tensor) -> None:
    """Add a row over W ranks in 2(W - 1) steps round a ring, each of which sends 1/W of it to the right neighbour.

    In the first W - 1 steps each rank adds the part that arrives to its own; then rank r has the sum of part r + 1. In
    the others these sums go round once more. (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms.) Three ranks
    with their parts:

                  rank 0                 rank 1                 rank 2
        start     a0     a1    a2        b0    b1     b2        c0    c1    c2
        step 1    a0     a1    a2+c2     a0+b0 b1     b2        c0    b1+c1 c2
        step 2    a0     all   a2+c2     a0+b0 b1     all       all   b1+c1 c2
        step 3    all    all   a2+c2     a0+b0 all    all       all   b1+c1 all
        step 4    all    all   all       all   all    all       all   all   all
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    parts = row.tensor_split(world)
    for step in range(2 * (world - 1)):
        adds, sent, received = step < world - 1, parts[(rank - step) % world], parts[(rank - step - 1) % world]
        arrived = torch.empty_like(received)
        moves = [dist.P2POp(dist.isend, sent, (rank + 1) % world), dist.P2POp(dist.irecv, arrived, (rank - 1) % world)]
        moves = [move for move in moves if move.tensor.numel()]
        for move in dist.batch_isend_irecv(moves) if moves else ():
            move.wait()
        received.copy_(received + arrived if adds else arrived)


METHODS = {"all_reduce": all_reduce, "bucket": bucket, "ring": ring, "reduce_broadcast": reduce_broadcast}
