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

    def wait(self) -> None:
        """Wait until it is this rank's turn again. To be called in its thread."""
        self.paused.release()
        self.go.acquire()

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
        """Run a step of each rank, and return their results. If one fails, the threads of others wait for good.

        Args:
            begin: called with the rank before each of its turns.

        Raises:
            RuntimeError: ranks run different numbers of backward passes.
        """
        self.turns = [RankStep(with_thread_settings(step), self.module) for step in steps]
        for turn in self.turns:
            turn.start()
        while not all(turn.done for turn in self.turns):
            for rank, turn in enumerate(self.turns):
                self.rank = rank
                begin(rank)
                turn.load()
                with self.virtual.as_rank(rank):
                    turn.resume()
                if turn.error is not None:
                    raise turn.error
                turn.store()
            if len({turn.done for turn in self.turns}) == 2:
                raise RuntimeError("the ranks of strategy=virtual do not come to the same number of backward passes")
            if not self.turns[0].done:
                self._add_gradients()
        self.turns[0].load()
        self.rank = 0
        return [turn.result for turn in self.turns]

    def backward(self, call: Callable[[], None]) -> None:
        """Run a backward pass in a rank's thread; afterwards gradients are those of all ranks."""
        turn = self.turns[self.rank]
        turn.before = {parameter: parameter.grad for parameter in self.module.parameters()}
        for parameter in turn.before:
            parameter.grad = None
        call()
        turn.wait()

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


def without_steps(returned: Any) -> Any:
    """Return one, several or no optimizers or schedules as such that do not step."""
    if isinstance(returned, list):
        return [NoOpOptimizer(each) for each in returned]
    return None if returned is None else NoOpOptimizer(returned)
