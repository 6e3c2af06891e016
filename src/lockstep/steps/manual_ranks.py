"""Virtual ranks of a module that optimizes manually: its backward passes and steps lie within the training step.

Under ddp each backward pass ends with the mean over ranks. So each virtual rank runs its step in a thread of its own,
one at a time, up to its next backward pass; there it waits until all have come as far, and goes on with the sum of all.
Parameters are the same ones for all ranks: rank 0 steps, the others' steps do nothing.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.parallel.autocast import with_thread_settings
from lockstep.parallel.virtual_ranks import VirtualRanks
from lockstep.private_api.lightning import TOGGLED

Gradients = dict[nn.Parameter, Tensor | None]


class Cancelled(BaseException):
    """Another rank has failed. No `except Exception` in a user's code catches it."""


class RankStep:
    """One rank's step under way, in a thread. `contribution`: the gradients of the backward pass at which it waits."""

    def __init__(self, step: Callable[[], Any]) -> None:
        self.step = step
        self.go, self.paused = threading.Event(), threading.Event()
        self.done = self.cancelled = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.gradients: Gradients = {}
        self.contribution: Gradients = {}
        self.trainable: dict[nn.Parameter, bool] = {}
        self.toggled: Any = None
        self.thread = threading.Thread(target=self._run, daemon=True)

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

    def _run(self) -> None:
        try:
            self._wait()
            self.result = self.step()
        except Cancelled:
            pass
        except BaseException as error:
            self.error = error
        self.done = True
        self.paused.set()

    def pause(self) -> None:
        """Wait until it is this rank's turn again. To be called in its thread."""
        self.paused.set()
        self._wait()

    def _wait(self) -> None:
        self.go.wait()
        self.go.clear()
        if self.cancelled:
            raise Cancelled

    def resume(self) -> None:
        """Let the rank go on until it waits, or is done. To be called in the main thread."""
        self.paused.clear()
        self.go.set()
        self.paused.wait()


class ManualRankScheduler:
    """Runs the steps of all virtual ranks in turn. `rank` is the one whose turn it is."""

    def __init__(self, module: Any, virtual: VirtualRanks) -> None:
        self.module, self.virtual = module, virtual
        self.rank = 0
        self.turns: list[RankStep] = []

    def run(self, steps: Sequence[Callable[[], Any]], begin: Callable[[int], None]) -> list[Any]:
        """Run a step of each rank, and return what each has returned.

        Args:
            begin: called with the rank before it goes on.

        Raises:
            RuntimeError: ranks do not come to the same number of backward passes.
        """
        self.turns = [RankStep(with_thread_settings(step)) for step in steps]
        for turn in self.turns:
            turn.store(self.module)
            turn.thread.start()
        try:
            while not all(turn.done for turn in self.turns):
                for rank, turn in enumerate(self.turns):
                    begin(rank)
                    self._take(rank, turn)
                self._add_gradients()
        finally:
            self._end()
        self.turns[0].load(self.module)
        self.rank = 0
        return [turn.result for turn in self.turns]

    def backward(self, call: Callable[[], None]) -> None:
        """Run a backward pass in a rank's thread; it ends with the gradient of all ranks."""
        turn = self.turns[self.rank]
        before: Gradients = {parameter: parameter.grad for parameter in turn.gradients}
        for parameter in before:
            parameter.grad = None
        call()
        turn.contribution = {parameter: parameter.grad for parameter in before}
        for parameter in before:
            parameter.grad = before[parameter]
        turn.pause()

    def _take(self, rank: int, turn: RankStep) -> None:
        """Put a rank's gradients and switches into the parameters, and let it go on until it waits."""
        self.rank = rank
        turn.load(self.module)
        with self.virtual.as_rank(rank):
            turn.resume()
        if turn.error is not None:
            raise turn.error
        turn.store(self.module)

    def _add_gradients(self) -> None:
        """Add the sum of the ranks' backward passes to the gradients of each."""
        waiting = [turn for turn in self.turns if not turn.done]
        if not waiting:
            return
        if len(waiting) < len(self.turns):
            raise RuntimeError("the ranks of strategy=virtual do not come to the same number of backward passes")
        for parameter in self.module.parameters():
            gradients = [each for turn in self.turns if (each := turn.contribution[parameter]) is not None]
            for turn in self.turns if gradients else []:
                total, before = torch.stack(gradients).sum(0), turn.gradients[parameter]
                turn.gradients[parameter] = total if before is None else before + total

    def _end(self) -> None:
        """Let no thread wait on."""
        for turn in self.turns:
            if not turn.done:
                turn.cancelled = True
                turn.go.set()
            turn.thread.join(10.0)


class NoOpOptimizer:
    """An optimizer or a schedule of a virtual rank above 0, which does not step: rank 0 steps for all."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def step(self, *arguments: Any, closure: Callable[[], Any] | None = None, **named: Any) -> Any:
        """Call the closure alone, which other ranks expect to go backward."""
        call = closure or next(filter(callable, arguments), None)
        return None if call is None else call()


def without_steps(returned: Any) -> Any:
    """Return one, several or no optimizers or schedules as such that do not step."""
    if isinstance(returned, list):
        return [NoOpOptimizer(each) for each in returned]
    return None if returned is None else NoOpOptimizer(returned)
