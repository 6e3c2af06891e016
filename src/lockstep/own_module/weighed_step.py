"""The training step of a user's module, so that its loss and its gradient are those of the whole global batch.

Of the module's one instance `training_step` notes its loss, and runs the virtual ranks that there are; `backward`
weighs it by samples; `optimizer_step` and what hands out optimizers see to it that ranks step alike.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lockstep.config_error import config_error
from lockstep.own_module.loaders import Taken
from lockstep.own_module.logged import Logged, metric_modules
from lockstep.own_module.loss_weight import LossWeighting, Scale, loss_of, loss_weight, with_loss
from lockstep.own_module.replace_method import replace_method
from lockstep.own_module.turns import Turns, stepless
from lockstep.parallel.virtual_ranks import VirtualRanks
from lockstep.plan import Plan
from lockstep.private_api.torchmetrics import metric_state, restore_metric
from lockstep.random_state import random_state, restore_random_state
from lockstep.targets.kinds import overrides

Transfer = Callable[[Any], Any]


class WeighedStep:
    """`taken` is the batch under way, `loss` what its step has returned, over all virtual ranks.

    transfer: brings the batch of a virtual rank to the device.
    """

    def __init__(self, plan: Plan, module: Any, logged: Logged, transfer: Transfer) -> None:
        self.plan, self.module, self.logged, self.transfer = plan, module, logged, transfer
        self.virtual: VirtualRanks | None = None
        if (virtual_ranks := plan.strategy.layout(plan.devices).virtual_ranks) > 1:
            self.virtual = VirtualRanks(module, virtual_ranks, plan.seed)
        self.ranks = plan.world_size * virtual_ranks
        manual = not module.automatic_optimization
        self.turns = Turns(module, self.virtual) if self.virtual is not None and manual else None
        self.taken = Taken(torch.arange(0), 0, None)
        self.loss: Tensor | None = None
        self.weighting = LossWeighting()
        self.backwards, self.batches = 0, 1
        self.is_simple = self.ranks == 1 or module.automatic_optimization
        """Whether the step needs no more than its loss noted: no virtual ranks, no shards, no gradients to watch."""
        self.is_simple &= self.virtual is None and not plan.strategy.sharded
        self.has_default_backward = self.is_simple and not overrides(module, "backward")
        self.within_backward = False
        self.watched: set[nn.Parameter] = set()
        self.not_averaged: set[int] = set()

    def wrap(self) -> None:
        """The module's own methods, of this one object."""
        replace_method(self.module, "training_step", self._training_step)
        replace_method(self.module, "backward", self._backward)
        replace_method(self.module, "optimizer_step", self._optimizer_step)
        replace_method(self.module, "lr_schedulers", self.stepless)

    def begin(self, taken: Taken, batches: int) -> None:
        """A batch, of so many that an optimizer step has."""
        self.taken, self.loss, self.batches = taken, None, batches
        self.weighting.weight = 1.0
        if self.virtual is None:
            self.weighting.weight = loss_weight(self.plan, taken, self.samples, self.plan.world_size, batches)
        else:
            self.virtual.begin()

    @property
    def samples(self) -> int:
        """This process's samples of the batch: of all virtual ranks, but none of a stand-in."""
        if self.virtual is not None:
            return self.taken.samples
        return 0 if self.taken.stand_in else self.taken.own

    def _training_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def training_step(batch: Any, *rest: Any, **named: Any) -> Any:
            if self.is_simple and not self.taken.stand_in:
                outputs = original(batch, *rest, **named)
                self._note_loss(outputs)
                return outputs
            with self.plan.strategy.tensors.full_weights(self.module):
                self._watch()
                return counted(batch, lambda part: original(part, *rest, **named))

        def counted(batch: Any, step: Callable[[Any], Any]) -> Any:
            if self.taken.stand_in:
                return self._standing_in(lambda: step(batch))
            if self.turns is not None:
                return self._in_turns(batch, step)
            if self.virtual is not None:
                self.logged.samples = self.taken.own
            outputs = step(batch)
            self.logged.samples = self.samples
            loss = self._note_loss(outputs)
            if self.virtual is None or loss is None:
                return outputs
            return with_loss(outputs, self._of_virtual_ranks(loss, step))

        return training_step

    def _in_turns(self, batch: Any, step: Callable[[Any], Any]) -> Any:
        """Each virtual rank's step, up to its next backward pass in turn. What rank 0's returns."""
        assert self.turns is not None
        counts = [self.taken.own, *(count for _, count in self.taken.parts)]
        parts = [batch, *(self.transfer(part) if count else None for part, count in self.taken.parts)]
        steps = [partial(step, part) for part, count in zip(parts, counts, strict=True) if count]

        def begin(rank: int) -> None:
            self.logged.samples, self.logged.virtual_rank = counts[rank], rank
            self.weighting.weight = loss_weight(self.plan, self.taken, counts[rank], 1, self.batches)

        outputs = self.turns.run(steps, begin)
        begin(0)
        self.logged.samples = self.samples
        losses = [(loss_of(own), count) for own, count in zip(outputs, counts, strict=False)]
        seen = [loss.detach() * count for loss, count in losses if loss is not None]
        self.loss = torch.stack(seen).sum() / self.taken.samples if seen else None
        return outputs[0]

    def stepless(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What hands out optimizers or schedules: to a virtual rank above 0 such as do not step."""

        def found(*arguments: Any, **named: Any) -> Any:
            made = original(*arguments, **named)
            return stepless(made) if self.turns is not None and self.turns.rank else made

        return found

    def _standing_in(self, step: Callable[[], Any]) -> Any:
        """A step on somebody else's sample, so that this rank takes part in it: nothing of it may count."""
        metrics = {name: copy.deepcopy(metric_state(own)) for name, own in metric_modules(self.module)}
        device = next(self.module.parameters()).device
        random = random_state([device])
        outputs = step()
        restore_random_state(random, [device])
        for name, own in metric_modules(self.module):
            own.reset()
            restore_metric(own, metrics[name])
        self._note_loss(outputs)
        return outputs

    def _note_loss(self, outputs: Any) -> Tensor | None:
        """Keep the loss of a step for the record, and return it."""
        loss = loss_of(outputs)
        if loss is None:
            self._require_loss(outputs, loss)
        self.loss = None if loss is None else loss.detach()
        return loss

    def _require_loss(self, outputs: Any, loss: Tensor | None) -> None:
        """Refuse a step of automatic optimization without a loss. None skips a step where one rank trains: others would
        wait for this one's gradient.

        Raises:
            ConfigError: names the module.
        """
        if loss is not None or not self.module.automatic_optimization:
            return
        plan, ranks = self.plan, self.ranks
        if outputs is None and ranks == 1:
            return
        what = "None" if outputs is None else f"a {type(outputs).__name__} without a tensor as its loss"
        why = f"its training_step returns {what}"
        alone = ""
        if outputs is None:
            why += f", and the other of {ranks} ranks would wait for its gradient"
            alone = ", or strategy=single, which skips the step"
        instead = "one that returns a loss, 0 * that of the batch, say"
        if isinstance(outputs, Mapping):
            instead = "one whose dictionary has it under the key loss"
        raise config_error("model", plan.model.name, why, f"{instead}{alone}")

    def _watch(self) -> None:
        """See which parameters get gradients past `manual_backward`, by their places among the module's."""
        if self.module.automatic_optimization or self.ranks == 1:
            return
        for place, own in enumerate(self.module.parameters()):
            if own.requires_grad and own not in self.watched:
                self.watched.add(own)
                own.register_hook(partial(self._seen, place))

    def _seen(self, place: int, _gradient: Tensor) -> None:
        if not self.within_backward:
            self.not_averaged.add(place)

    def _forget_zeroed(self) -> None:
        """What has been put to None since counts no more."""
        if self.not_averaged:
            parameters = [*self.module.parameters()]
            self.not_averaged = {place for place in self.not_averaged if parameters[place].grad is not None}

    def require_averaged(self, parameters: Sequence[Tensor], resumed: bool) -> None:
        """Refuse manual optimization that steps by gradients past `manual_backward`: ranks would part, each by its own.

        Args:
            parameters: that step now.
            resumed: whether gradients may come from a run before.

        Raises:
            ConfigError: names the module.
        """
        if self.module.automatic_optimization or self.ranks == 1:
            return
        self._forget_zeroed()
        places = {id(own): place for place, own in enumerate(self.module.parameters())} if self.not_averaged else {}
        past = any(places.get(id(own)) in self.not_averaged for own in parameters)
        none_at_all = not self.backwards and not resumed and any(own.grad is not None for own in parameters)
        if past or none_at_all:
            why = "it steps by gradients of loss.backward(), which nobody averages over ranks"
            raise config_error("model", self.plan.model.name, why, "one that calls self.manual_backward(loss) instead")

    def _of_virtual_ranks(self, first: Tensor, step: Callable[[Any], Any]) -> Tensor:
        """The losses of all virtual ranks, weighed and added: rank 0's is there, the others' are computed in turn."""
        assert self.virtual is not None
        plan, taken = self.plan, self.taken
        total = first * loss_weight(plan, taken, taken.own, 1, self.batches)
        seen = first.detach() * taken.own
        for rank, (part, count) in enumerate(taken.parts, start=1):
            if count:
                self.logged.samples, self.logged.virtual_rank = count, rank
                with self.virtual.as_rank(rank):
                    outputs = step(self.transfer(part))
                loss = loss_of(outputs)
                self._require_loss(outputs, loss)
                if loss is not None:
                    total = total + loss * loss_weight(plan, taken, count, 1, self.batches)
                    seen = seen + loss.detach() * count
        self.logged.samples, self.logged.virtual_rank = self.samples, 0
        self.loss = seen / taken.samples
        return total

    def backward(self, loss: Tensor, batches: int, scale: Scale | None) -> None:
        """Go backward from the loss of one of so many batches of an optimizer step, by the module's own method if it
        has one.
        """
        if self.has_default_backward:
            self.backwards += 1
            self.weighting.backward(loss, batches, scale)
        else:
            self.module.backward((loss if scale is None else scale(loss)) / batches)

    def _backward(self, original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def backward(loss: Tensor, *arguments: Any, **named: Any) -> None:
            self.backwards += 1
            self._forget_zeroed()
            weight = self.weighting.weight
            weighed = loss if weight == 1.0 else loss * weight
            sharded = self.plan.strategy.tensors.sharded_module(self.module)

            def call() -> None:
                self.within_backward = True
                try:
                    original(weighed, *arguments, **named)
                finally:
                    self.within_backward = False

            if sharded is not None:
                sharded.backward(call)
            elif self.turns is None:
                call()
            else:
                self.turns.backward(call)

        return backward

    def _optimizer_step(self, original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def optimizer_step(epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
            if isinstance(optimizer, torch.optim.LBFGS):
                original(epoch, batch_idx, optimizer, lambda: self._global_loss(optimizer_closure()))
            else:
                original(epoch, batch_idx, optimizer, optimizer_closure)

        return optimizer_step

    def _global_loss(self, loss: Tensor | None) -> Tensor | None:
        """An optimizer that judges by its closure's loss judges by that of all ranks, or they would part."""
        if loss is None or self.plan.world_size == 1:
            return loss
        total = (loss.detach() * self.weighting.weight).to(torch.float64)
        dist.all_reduce(total)
        return (total / self.plan.world_size).to(loss.dtype)
