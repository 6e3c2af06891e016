"""The steps of a user's LightningModule on N virtual ranks: each rank's step in turn, on its own slice.

With manual optimization, backward passes and optimizer steps lie within the step, and under ddp each backward pass ends
with the mean over ranks. So each virtual rank runs its step in a thread of its own, one at a time, up to its next
backward pass; there it waits until all have come as far, and goes on with the sum of all. All ranks share the
parameters: rank 0 steps, the steps of others do nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from operator import add
from threading import Semaphore, Thread
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.checkpoint.content import Progress
from lockstep.loaders.rank_data import RankData
from lockstep.loaders.rank_loader import BatchShare
from lockstep.loggers import Loggers
from lockstep.parallel.virtual_ranks import VirtualRanks
from lockstep.plan import Plan
from lockstep.private_api.lightning import TOGGLED
from lockstep.steps.exact_log import ExactLog
from lockstep.steps.loss_weight import loss_weight
from lockstep.steps.module_step import ModuleStep
from lockstep.steps.step_outputs import join_outputs
from lockstep.targets.kinds import overrides, replace_method


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


class VirtualSteps(ModuleStep):
    """`rank`: the one whose step runs, or -1; `turns`: the steps of the ranks in a batch of manual optimization.

    counts: the samples of each rank in the batch, if it has any.
    """

    def __init__(self, plan: Plan, module: Any, log: ExactLog, data: RankData, loggers: Loggers) -> None:
        super().__init__(plan, module, log, data, loggers)
        self.virtual = VirtualRanks(module, plan.strategy.layout(plan.devices).virtual_ranks, plan.seed)
        self.rank = -1
        self.turns: list[RankStep] = []
        for name in ("validation_step", "test_step"):
            if overrides(module, name):
                replace_method(module, name, self._evaluation_step)

    def watch(self, optimizers: Sequence[Optimizer], wrapped: object) -> None:
        """Register what `ModuleStep.watch` does; for a rank above 0 optimizers and schedules do not step."""
        super().watch(optimizers, wrapped)
        for name in ("optimizers", "lr_schedulers"):
            replace_method(self.module, name, self._optimizers)

    def _optimizers(self, original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        returned = original(*arguments, **options)
        if self.rank < 1 or returned is None:
            return returned
        return [NoOpOptimizer(each) for each in returned] if isinstance(returned, list) else NoOpOptimizer(returned)

    def begin(self, share: BatchShare, position: Progress, batches: int) -> None:
        self.set_share(share)
        self.batches, self.loss = batches, None
        self.virtual.begin()

    @property
    def samples(self) -> int:
        """Return this process's samples of the batch: those of all ranks."""
        return self.share.samples

    def begin_evaluation(self, stage: str) -> None:
        """Drop the buffers of the ranks: as under DDP, all evaluate with rank 0's."""
        self.virtual.buffers = {}

    def _training_step(self, original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Run the step of every rank; return rank 0's outputs, with the sum of all weighted losses."""
        if self.rank >= 0:  # called by another step
            return original(*arguments, **options)
        calls = self._calls(original, *arguments, **options)
        weights = [loss_weight(self.plan, self.share, count, 1, self.batches) for count in self.counts]
        manual = self.plan.model.manual
        outputs = self._interleaved(calls, weights) if manual else self._one_after_another(calls)
        losses = [(loss, rank) for rank, each in enumerate(outputs) if (loss := self._require_loss(each)) is not None]
        if not losses:
            self.loss = None
            return outputs[0]
        self.loss = reduce(add, (loss.detach() * self.counts[rank] for loss, rank in losses)) / self.samples
        if manual:
            return outputs[0]
        total = reduce(add, (loss * weights[rank] for loss, rank in losses))
        return {**outputs[0], "loss": total} if isinstance(outputs[0], dict) else total

    def _evaluation_step(self, original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Run the step of every rank; return rank 0's outputs, with the predictions of all ranks."""
        if self.rank >= 0:
            return original(*arguments, **options)
        return join_outputs(self._one_after_another(self._calls(original, *arguments, **options)))

    def _calls(self, step: Callable[..., Any], batch: Any, *rest: Any, **options: Any) -> list[Callable[[], Any]]:
        """Return a call of a step for each rank that has samples, whose numbers are `counts`."""

        def transferred(batch: Any) -> Any:
            return step(self.data.transfer(batch, self.loader), *rest, **options)

        others = [(rank_batch, count) for rank_batch, count in self.share.others if count]
        self.counts = [self.share.count, *(count for _, count in others)]
        return [partial(step, batch, *rest, **options), *(partial(transferred, each) for each, _ in others)]

    @contextmanager
    def _as_rank(self, rank: int) -> Iterator[None]:
        """Let a rank compute and log."""
        self.rank = self.log.virtual_rank = rank
        self.log.samples = self.counts[rank]
        with self.virtual.as_rank(rank):
            yield
        self.rank, self.log.virtual_rank = -1, 0
        self.log.samples = self.samples

    def _one_after_another(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run the step of each rank to its end, and return their outputs."""
        outputs = []
        for rank, call in enumerate(calls):
            with self._as_rank(rank):
                outputs.append(call())
        return outputs

    def _interleaved(self, calls: Sequence[Callable[[], Any]], weights: Sequence[float]) -> list[Any]:
        """Run the steps of all ranks in turn between their backward passes, and return their outputs."""
        self.turns = [RankStep(with_thread_settings(call), self.module) for call in calls]
        for turn in self.turns:
            turn.start()
        while not all(turn.done for turn in self.turns):
            for rank, turn in enumerate(self.turns):
                self.weight = weights[rank]
                with self._as_rank(rank):
                    turn.resume()
            if len({turn.done for turn in self.turns}) == 2:
                raise RuntimeError("the ranks of strategy=virtual do not come to the same number of backward passes")
            if not self.turns[0].done:
                self._add_gradients()
        self.turns[0].load()
        return [turn.result for turn in self.turns]

    def weighted_backward(self, original: Callable[..., None], loss: Tensor, *arguments: Any, **options: Any) -> None:
        """Run a backward pass; with manual optimization, gradients are those of all ranks afterwards."""
        call = partial(super().weighted_backward, original, loss, *arguments, **options)
        if self.plan.model.manual:
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


def with_thread_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with this thread's gradient mode and CPU autocast, to be called in another thread."""
    inference, gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    autocast, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def call(*arguments: Any) -> Any:
        with (
            torch.inference_mode(inference),
            torch.set_grad_enabled(gradients),
            torch.autocast("cpu", dtype, enabled=autocast, cache_enabled=False),
        ):
            return function(*arguments)

    return call


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
