"""The training step of a user's LightningModule on N virtual ranks: each rank's step in turn, on its own slice.

With manual optimization, backward passes and optimizer steps lie within the step, and under ddp each backward pass ends
with the mean over ranks. So each virtual rank runs its step in a thread of its own, one at a time, up to its next
backward pass; there it waits until all have come as far, and goes on with the sum of all. All ranks share the
parameters: rank 0 steps, the steps of others do nothing.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import add
from threading import Semaphore, Thread
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.loaders.rank_loader import BatchShare
from lockstep.parallel.autocast import with_thread_settings
from lockstep.parallel.virtual_ranks import VirtualRanks
from lockstep.plan import Plan
from lockstep.private_api.lightning import TOGGLED
from lockstep.steps.exact_log import ExactLog
from lockstep.steps.loss_weight import Step, loss_weight, with_loss

TrainingStep = Callable[[Any], Any]
"""From a batch to the return value of the module's training_step."""


class RankStep(Thread):
    """One rank's step in a thread, which waits at each backward pass.

    state: gradient and `requires_grad` of each parameter, with which the rank goes on. While it waits, gradients are
    those of the backward pass alone, and `before` has those from before.
    """

    def __init__(self, step: Callable[[], Any], module: nn.Module) -> None:
        super().__init__(daemon=True)
        self.step, self.module = step, module
        self.go, self.paused = Semaphore(0), Semaphore(0)
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.before: dict[nn.Parameter, Tensor | None] = {}
        self.store()

    def store(self) -> None:
        """Keep the module's gradients and switches for the rank's next turn."""
        self.state = {parameter: (parameter.grad, parameter.requires_grad) for parameter in self.module.parameters()}
        self.toggled = getattr(self.module, TOGGLED, None)

    def load(self) -> None:
        """Put the rank's gradients and switches into the module."""
        for parameter, state in self.state.items():
            parameter.grad, parameter.requires_grad = state
        setattr(self.module, TOGGLED, self.toggled)

    def run(self) -> None:
        self.go.acquire()
        try:
            self.result = self.step()
        except BaseException as error:
            self.error = error
        self.done = True
        self.paused.release()

    def backward(self, call: Callable[[], None]) -> None:
        """Run a backward pass, and wait until it is this rank's turn again. To be called in its thread."""
        self.before = {parameter: parameter.grad for parameter in self.state}
        for parameter in self.before:
            parameter.grad = None
        call()
        self.paused.release()
        self.go.acquire()

    def resume(self) -> None:
        """Let the rank go on until it waits, or is done. To be called in the main thread."""
        self.load()
        self.go.release()
        self.paused.acquire()
        if self.error is not None:
            raise self.error
        self.store()


class VirtualSteps:
    """`rank`: the current one; `turns`: the steps of the ranks in a batch of manual optimization.

    transfer: moves the batch of a virtual rank to the device.
    """

    def __init__(self, plan: Plan, module: Any, log: ExactLog, weighting: Step, transfer: Callable[[Any], Any]) -> None:
        self.plan, self.module, self.log, self.weighting, self.transfer = plan, module, log, weighting, transfer
        self.ranks = VirtualRanks(module, plan.strategy.layout(plan.devices).virtual_ranks, plan.seed)
        self.manual = plan.model.manual
        self.rank = 0
        self.turns: list[RankStep] = []

    def begin(self, share: BatchShare, batches: int) -> None:
        """Begin a batch of an optimizer step that has `batches` of them."""
        self.share, self.batches = share, batches
        self.ranks.begin()

    def optimizers(self, original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return the optimizers or schedules of a method; for a rank above 0, such as do not step."""
        returned = original(*arguments, **options)
        if not self.rank or returned is None:
            return returned
        return [NoOpOptimizer(each) for each in returned] if isinstance(returned, list) else NoOpOptimizer(returned)

    def run(
        self, batch: Any, step: TrainingStep, require_loss: Callable[[Any], Tensor | None]
    ) -> tuple[Any, Tensor | None]:
        """Run the step of every rank.

        Args:
            batch: rank 0's; the other ranks' are in the share.
            require_loss: returns the loss in the outputs of a step, or raises.

        Returns:
            The outputs for the engine, and the mean loss over all ranks.
        """
        others = [(rank_batch, count) for rank_batch, count in self.share.others if count]
        counts = [self.share.count, *(count for _, count in others)]
        weights = [loss_weight(self.plan, self.share, count, 1, self.batches) for count in counts]
        calls = [partial(step, batch)]
        calls += [partial(lambda each: step(self.transfer(each)), rank_batch) for rank_batch, _ in others]

        def begin(rank: int) -> None:
            self.rank = self.log.virtual_rank = rank
            self.log.samples = counts[rank]
            if self.manual:
                self.weighting.weight = weights[rank]

        outputs = (self._interleaved if self.manual else self._one_after_another)(calls, begin)
        begin(0)
        self.log.samples = self.share.samples
        losses = [(loss, index) for index, each in enumerate(outputs) if (loss := require_loss(each)) is not None]
        if not losses:
            return outputs[0], None
        mean = reduce(add, (loss.detach() * counts[index] for loss, index in losses)) / self.share.samples
        if self.manual:
            return outputs[0], mean
        return with_loss(outputs[0], reduce(add, (loss * weights[index] for loss, index in losses))), mean

    def _one_after_another(self, calls: Sequence[Callable[[], Any]], begin: Callable[[int], None]) -> list[Any]:
        """Run the step of each rank to its end, and return their outputs."""
        outputs = []
        for rank, call in enumerate(calls):
            begin(rank)
            with self.ranks.as_rank(rank):
                outputs.append(call())
        return outputs

    def _interleaved(self, calls: Sequence[Callable[[], Any]], begin: Callable[[int], None]) -> list[Any]:
        """Run the steps of all ranks in turn between their backward passes, and return their outputs.

        Raises:
            RuntimeError: ranks run different numbers of backward passes.
        """
        self.turns = [RankStep(with_thread_settings(call), self.module) for call in calls]
        for turn in self.turns:
            turn.start()
        while not all(turn.done for turn in self.turns):
            for rank, turn in enumerate(self.turns):
                begin(rank)
                with self.ranks.as_rank(rank):
                    turn.resume()
            if len({turn.done for turn in self.turns}) == 2:
                raise RuntimeError("the ranks of strategy=virtual do not come to the same number of backward passes")
            if not self.turns[0].done:
                self._add_gradients()
        self.turns[0].load()
        return [turn.result for turn in self.turns]

    def backward(self, call: Callable[[], None]) -> None:
        """Run a backward pass; with manual optimization, gradients are those of all ranks afterwards."""
        if self.manual:
            self.turns[self.rank].backward(call)
        else:
            call()

    def _add_gradients(self) -> None:
        """Add the sum of the ranks' backward passes to the gradients of each, in memory of its own."""
        for parameter in self.module.parameters():
            gradients = [each for turn in self.turns if (each := turn.state[parameter][0]) is not None]
            for turn in self.turns:
                gradient = turn.before[parameter]
                if gradients:
                    total = torch.stack(gradients).sum(0)
                    gradient = total if gradient is None else gradient + total
                turn.state[parameter] = gradient, turn.state[parameter][1]


class NoOpOptimizer:
    """An optimizer or a schedule of a virtual rank above 0, which does not step: rank 0 steps for all."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def step(self, *arguments: Any, closure: Callable[[], Any] | None = None, **named: Any) -> Any:
        """Call only the closure, in which other ranks expect a backward pass."""
        call = closure or next(filter(callable, arguments), None)
        return None if call is None else call()
