"""A batch on one rank: forward, backward, the average over ranks, clipping, and the update of the weights."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from tests.mirror.data import Share


class Step(nn.Module):
    """A module whose forward is its training step, as DistributedDataParallel needs it.

    DDP adds gradients in buckets, of 1 MiB and then 25 MiB, that it fills in the order of the parameters: here from the
    last to the first. More than two numbers have several sums, so the order of the buckets decides the last bits.
    """

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.last_to_first = nn.ParameterList([*module.parameters()][::-1])
        self.module = module

    def forward(self, *arguments: Any) -> Any:
        return self.module.training_step(*arguments)


def arguments_for(method: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    """Return those of batch, batch_idx and dataloader_idx that a step of the user's takes."""
    kinds = [parameter.kind for parameter in inspect.signature(method).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return arguments
    return arguments[: sum(kind in (0, 1) for kind in kinds)]


def weight_of(run: Any, share: Share, accumulate: int) -> float:
    """Return the factor on this rank's mean loss, so that the average over ranks and batches is that of all samples."""
    if share.count == 0:
        return 0.0
    if run.config.loss_reduction != "mean":
        return 1.0 if run.config.loss_reduction == "none" else float(run.world)
    return run.world * accumulate * share.count / (share.step_total or share.total * accumulate)  # type: ignore[no-any-return]


def automatic_step(run: Any, share: Share, batch: Any, index: int, is_boundary: bool) -> Mapping[str, Any]:
    """Run forward and backward of a batch, and at the end of an optimizer step (`is_boundary`) the update."""
    module, trainer, optimizer = run.module, run.trainer, run.optimizers[0]
    accumulate = trainer.accumulate_grad_batches
    outputs: dict[str, Any] = {}
    if index % accumulate == 0:
        run.counted = 0.0

    def closure() -> Tensor | None:
        with run.forward_context(share):
            returned = run.wrapped(*arguments_for(module.training_step, batch, index))
        loss = returned.get("loss") if isinstance(returned, Mapping) else returned
        if index % accumulate == 0:
            module.on_before_zero_grad(optimizer)
            module.optimizer_zero_grad(trainer.current_epoch, index, optimizer)
        factor, run.loss = weight_of(run, share, accumulate), None
        if loss is None:
            return None
        run.loss, run.weight = loss.detach(), share.count
        if isinstance(returned, Mapping) and returned.get("weight") is not None:  # the loss is a mean over so many
            run.weight = float(returned["weight"]) if share.count else 0.0
            run.counted += run.weight
            factor = run.weight * run.world * accumulate
        module.on_before_backward(loss / accumulate)
        module.backward(run.scaler.scale(loss / accumulate * factor))
        module.on_after_backward()
        outputs.update(returned if isinstance(returned, Mapping) else {}, loss=loss.detach() / accumulate)
        return outputs["loss"]  # type: ignore[no-any-return]

    def complete() -> Tensor | None:
        loss = closure()
        run.average()
        run.scaler.unscale_(optimizer)
        before_update(run, optimizer)
        clip, algorithm = trainer.gradient_clip_val, trainer.gradient_clip_algorithm
        module.configure_gradient_clipping(optimizer, gradient_clip_val=clip, gradient_clip_algorithm=algorithm)
        return loss

    if not is_boundary:
        with run.wrapped.no_sync() if run.ddp else nullcontext():
            closure()
    elif run.scaler.is_enabled():
        if complete() is not None:
            run.scaler.step(optimizer)
            run.scaler.update()
    else:
        module.optimizer_step(trainer.current_epoch, index, optimizer, complete)
    trainer.global_step += is_boundary
    return outputs


def before_update(run: Any, optimizer: Optimizer) -> None:
    """Measure the gradients of an optimizer, which are complete and averaged over ranks."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if run.counted is not None and run.counts_weights:
        total = torch.tensor(run.counted, dtype=torch.float64, device=run.device)
        if run.world > 1:
            dist.all_reduce(total)
        for parameter in parameters:
            if total and parameter.grad is not None:
                parameter.grad.div_(total.item())
    norms = [nn.utils.get_total_norm([each.grad]).item() for each in parameters if each.grad is not None]
    rate = float(optimizer.param_groups[0]["lr"]) if parameters else 0.0
    run.updates.append((rate, norms))
    run.module.on_before_optimizer_step(optimizer)


def clip_gradients(optimizer: Optimizer, value: float | None = None, algorithm: Any = "norm") -> None:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if value and str(getattr(algorithm, "value", algorithm)) == "value":
        nn.utils.clip_grad_value_(parameters, value)
    elif value:
        nn.utils.clip_grad_norm_(parameters, value)


def manual_step(run: Any, share: Share, batch: Any, index: int) -> Mapping[str, Any]:
    """Run a training step that goes backward by `self.manual_backward`, and steps its optimizers itself."""
    run.factor = weight_of(run, share, 1)
    with run.forward_context(share):
        returned = run.module.training_step(*arguments_for(run.module.training_step, batch, index))
    outputs = dict(returned) if isinstance(returned, Mapping) else {"loss": returned}
    run.loss = outputs["loss"].detach() if isinstance(outputs.get("loss"), Tensor) else None
    run.weight = share.count
    return outputs if isinstance(returned, Mapping | Tensor) else {}


def manual_backward(run: Any, loss: Tensor, *arguments: Any, **options: Any) -> None:
    """Go backward, then average over ranks what this pass has added to the gradients."""
    earlier = [parameter.grad for parameter in run.module.parameters()]
    for parameter in run.module.parameters() if run.world > 1 and run.syncs else ():
        parameter.grad = None
    run.module.on_before_backward(loss)
    run.module.backward(loss * run.factor, *arguments, **options)
    run.module.on_after_backward()
    if run.world > 1 and run.syncs:
        average(all_reduce, [*run.module.parameters()])
        for parameter, gradient in zip(run.module.parameters(), earlier, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else gradient.add_(parameter.grad)


def watch_manual_steps(run: Any) -> None:
    """Measure, and call the module's hook, before each step of an optimizer; count it afterwards."""

    def before(optimizer: Any, arguments: Any, options: Any) -> Any:
        closure = options.get("closure") or (arguments[1] if len(arguments) > 1 else None)
        if closure is None:
            before_update(run, optimizer)
            return None

        def measured() -> Any:
            loss = closure()
            before_update(run, optimizer)
            return loss

        return (arguments[0], measured), {}

    def after(*_: Any) -> None:
        run.trainer.global_step += 1

    @contextmanager
    def toggle_model(optimizer: Any, sync_grad: bool = True) -> Any:
        run.syncs = sync_grad
        run.module.toggle_optimizer(optimizer)
        yield
        run.module.untoggle_optimizer(optimizer)
        run.syncs = True

    for optimizer in run.optimizers:
        optimizer.register_step_pre_hook(before)
        optimizer.register_step_post_hook(after)
        optimizer.optimizer, optimizer.toggle_model = optimizer, lambda *a, o=optimizer, **k: toggle_model(o, *a, **k)


def step_schedules(run: Any, interval: str, index: int, plateau: bool) -> None:
    """Step the schedules that are due: those of ReduceLROnPlateau by a logged value, or all others."""
    for schedule in run.schedules if run.module.automatic_optimization else ():
        if schedule.interval != interval or (index + 1) % schedule.frequency or schedule.reduce_on_plateau != plateau:
            continue
        value = run.trainer.callback_metrics.get(str(schedule.monitor)) if plateau else None
        if value is not None or not plateau:
            run.module.lr_scheduler_step(schedule.scheduler, value)


# averaging by hand, which DistributedDataParallel does during backward


def average(method: Callable[[Sequence[Tensor]], None], parameters: Sequence[nn.Parameter]) -> None:
    """Average the gradients over ranks; a parameter that has a gradient on no rank keeps none."""
    parameters = [parameter for parameter in parameters if parameter.requires_grad]
    if not parameters:
        return
    used = torch.tensor([parameter.grad is not None for parameter in parameters], device=parameters[0].device).long()
    dist.all_reduce(used)
    gradients = []
    for parameter, count in zip(parameters, used.tolist(), strict=True):
        if count:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            gradients.append(parameter.grad)
    if gradients:
        method(gradients)


def all_reduce(gradients: Sequence[Tensor]) -> None:
    """One message for each tensor: sum, then divide."""
    for gradient in gradients:
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()


def bucket(gradients: Sequence[Tensor], add: Callable[[Tensor], Any] = dist.all_reduce) -> None:
    """One message for all: the gradients are copied into one row and back."""
    row = torch.cat([gradient.reshape(-1) for gradient in gradients])
    add(row)
    row /= dist.get_world_size()
    for part, gradient in zip(row.split([each.numel() for each in gradients]), gradients, strict=True):  # type: ignore[no-untyped-call]
        gradient.copy_(part.view_as(gradient))


def reduce_broadcast(gradients: Sequence[Tensor]) -> None:
    """Rank 0 adds and sends the mean to all, as a parameter server: its connection is the limit."""
    for gradient in gradients:
        dist.reduce(gradient, dst=0)
        gradient /= dist.get_world_size()
        dist.broadcast(gradient, src=0)


def ring(gradients: Sequence[Tensor]) -> None:
    bucket(gradients, ring_sum)


def ring_sum(row: Tensor) -> None:
    """Add a row over W ranks in 2(W - 1) steps round a ring, each of which sends 1/W of it to the right neighbour.

    In the first W - 1 steps each rank adds the part that arrives to its own; then rank r has the sum of part r + 1. In
    the others these sums go round once more. (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms.)
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    parts = row.tensor_split(world)
    for step in range(2 * (world - 1)):
        adds = step < world - 1
        sent, received = parts[(rank - step + (not adds)) % world], parts[(rank - step - adds) % world]
        arrived = torch.empty_like(received)
        moves = [dist.P2POp(dist.isend, sent, (rank + 1) % world), dist.P2POp(dist.irecv, arrived, (rank - 1) % world)]
        moves = [move for move in moves if move.tensor.numel()]
        for move in dist.batch_isend_irecv(moves) if moves else ():
            move.wait()
        received.copy_(received + arrived if adds else arrived)


METHODS = {"all_reduce": all_reduce, "bucket": bucket, "ring": ring, "reduce_broadcast": reduce_broadcast}
