"""Virtual ranks of a module that optimizes manually: its backward passes and steps lie within the training step.

Under ddp each backward pass ends with the mean over ranks. So each virtual rank runs its step in a thread of its own,
one at a time, up to its next backward pass; there it waits until all have come as far, and goes on with the sum of all.
All ranks share the parameters: rank 0 steps, the steps of others do nothing.
"""

from collections.abc import Callable, Sequence
from threading import Semaphore, Thread
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.parallel.autocast import with_thread_settings
from lockstep.parallel.virtual_ranks import VirtualRanks
from lockstep.private_api.lightning import TOGGLED

Gradients = dict[nn.Parameter, Tensor | None]


class Cancelled(BaseException):
    """Raised in a rank's thread when another rank has failed. No `except Exception` in a user's code catches it."""


class RankStep(Thread):
    """One rank's step in a thread. `contribution`: the gradients of the backward pass at which it waits."""

    def __init__(self, step: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.step = step
        self.go, self.paused = Semaphore(0), Semaphore(0)
        self.done = self.cancelled = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.gradients: Gradients = {}
        self.contribution: Gradients = {}

    def store(self, module: nn.Module) -> None:
        """Keep the module's gradients and switches for the rank's next turn."""
        self.gradients = {parameter: parameter.grad for parameter in module.parameters()}
        self.trainable = {parameter: parameter.requires_grad for parameter in module.parameters()}
        self.toggled = getattr(module, TOGGLED, None)

    def load(self, module: nn.Module) -> None:
        """Put the rank's gradients and switches into the module."""
        for parameter, gradient in self.gradients.items():
            parameter.grad, parameter.requires_grad = gradient, self.trainable[parameter]
        setattr(module, TOGGLED, self.toggled)

    def run(self) -> None:
        try:
            self._wait()
            self.result = self.step()
        except BaseException as error:
            self.error = error
        self.done = True
        self.paused.release()

    def pause(self) -> None:
        """Wait until it is this rank's turn again. To be called in its thread."""
        self.paused.release()
        self._wait()

    def _wait(self) -> None:
        self.go.acquire()
        if self.cancelled:
            raise Cancelled

    def resume(self) -> None:
        """Let the rank go on until it waits, or is done. To be called in the main thread."""
        self.go.release()
        self.paused.acquire()


class ManualRankScheduler:
    """Runs the steps of all virtual ranks in turn. `rank` is the current one."""

    def __init__(self, module: Any, virtual: VirtualRanks) -> None:
        self.module, self.virtual = module, virtual
        self.rank = 0
        self.turns: list[RankStep] = []

    def run(self, steps: Sequence[Callable[[], Any]], begin: Callable[[int], None]) -> list[Any]:
        """Run a step of each rank, and return their results.

        Args:
            begin: called with the rank before each of its turns.

        Raises:
            RuntimeError: ranks run different numbers of backward passes.
        """
        self.turns = [RankStep(with_thread_settings(step)) for step in steps]
        for turn in self.turns:
            turn.store(self.module)
            turn.start()
        try:
            while not all(turn.done for turn in self.turns):
                for rank, turn in enumerate(self.turns):
                    self.rank = rank
                    begin(rank)
                    turn.load(self.module)
                    with self.virtual.as_rank(rank):
                        turn.resume()
                    if turn.error is not None:
                        raise turn.error
                    turn.store(self.module)
                self._add_gradients()
        finally:
            self._cancel()
        self.turns[0].load(self.module)
        self.rank = 0
        return [turn.result for turn in self.turns]

    def backward(self, call: Callable[[], None]) -> None:
        """Run a backward pass in a rank's thread; afterwards gradients are those of all ranks."""
        turn = self.turns[self.rank]
        before: Gradients = {parameter: parameter.grad for parameter in turn.gradients}
        for parameter in before:
            parameter.grad = None
        call()
        turn.contribution = {parameter: parameter.grad for parameter in before}
        for parameter in before:
            parameter.grad = before[parameter]
        turn.pause()

    def _add_gradients(self) -> None:
        """Add the sum of the ranks' backward passes to the gradients of each."""
        done = [turn.done for turn in self.turns]
        if all(done):
            return
        if any(done):
            raise RuntimeError("the ranks of strategy=virtual do not come to the same number of backward passes")
        for parameter in self.module.parameters():
            gradients = [each for turn in self.turns if (each := turn.contribution[parameter]) is not None]
            for turn in self.turns if gradients else []:
                total, before = torch.stack(gradients).sum(0), turn.gradients[parameter]
                turn.gradients[parameter] = total if before is None else before + total

    def _cancel(self) -> None:
        """End the threads that still wait."""
        for turn in self.turns:
            if not turn.done:
                turn.cancelled = True
                turn.go.release()
            turn.join(10.0)


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


def without_steps(returned: Any) -> Any:
    """Return one, several or no optimizers or schedules as such that do not step."""
    if isinstance(returned, list):
        return [NoOpOptimizer(each) for each in returned]
    return None if returned is None else NoOpOptimizer(returned)
