"""Virtual ranks of a module that optimizes manually: its backward passes and steps lie within the training step.

Under ddp each backward pass ends with the mean over ranks. So each virtual rank runs its step in a thread of its own,
one at a time, up to its next backward pass; there it waits until all have come as far, and goes on with the sum of all.
Parameters are the same ones for all ranks: rank 0 steps, the others' steps do nothing.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.parallel.virtual_ranks import VirtualRanks
from lockstep.private_api.lightning import TOGGLED

Gradients = dict[nn.Parameter, Tensor | None]


class Ended(BaseException):
    """Another rank has failed; past what a user's code might catch."""


class Turn:
    """One rank's step under way. `contribution`: of its backward pass, on which it waits."""

    def __init__(self, step: Callable[[], Any]) -> None:
        self.step = step
        self.go, self.paused = threading.Event(), threading.Event()
        self.done = self.ended = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.gradients: Gradients = {}
        self.contribution: Gradients = {}
        self.trainable: dict[nn.Parameter, bool] = {}
        self.toggled: Any = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._wait()
            self.result = self.step()
        except Ended:
            pass
        except BaseException as error:
            self.error = error
        self.done = True
        self.paused.set()

    def pause(self) -> None:
        """To be called in the rank's own thread: until it is its turn again."""
        self.paused.set()
        self._wait()

    def _wait(self) -> None:
        self.go.wait()
        self.go.clear()
        if self.ended:
            raise Ended

    def resume(self) -> None:
        """To be called in the main thread: until the rank waits, or is done."""
        self.paused.clear()
        self.go.set()
        self.paused.wait()


class Turns:
    """`rank` is whose turn it is."""

    def __init__(self, module: Any, virtual: VirtualRanks) -> None:
        self.module, self.virtual = module, virtual
        self.rank = 0
        self.turns: list[Turn] = []

    def run(self, steps: Sequence[Callable[[], Any]], begin: Callable[[int], None]) -> list[Any]:
        """What each rank's step returns.

        Args:
            begin: told the rank, before it goes on.

        Raises:
            RuntimeError: ranks do not come to the same number of backward passes.
        """
        parameters = [*self.module.parameters()]
        context = _autocast()
        self.turns = [Turn(_within(context, step)) for step in steps]
        for turn in self.turns:
            turn.gradients = {own: own.grad for own in parameters}
            turn.trainable = {own: own.requires_grad for own in parameters}
            turn.toggled = getattr(self.module, TOGGLED, None)
            turn.thread.start()
        try:
            while not all(turn.done for turn in self.turns):
                for rank, turn in enumerate(self.turns):
                    begin(rank)
                    self._take(rank, turn)
                self._add(parameters)
        finally:
            self._end()
        first = self.turns[0]
        for own in parameters:
            own.grad, own.requires_grad = first.gradients[own], first.trainable[own]
        setattr(self.module, TOGGLED, first.toggled)
        self.rank = 0
        return [turn.result for turn in self.turns]

    def backward(self, call: Callable[[], None]) -> None:
        """A backward pass in a rank's thread: ends with the gradient of all ranks."""
        turn = self.turns[self.rank]
        parameters = [*turn.gradients]
        before: Gradients = {own: own.grad for own in parameters}
        for own in parameters:
            own.grad = None
        call()
        turn.contribution = {own: own.grad for own in parameters}
        for own in parameters:
            own.grad = before[own]
        turn.pause()

    def _take(self, rank: int, turn: Turn) -> None:
        """A rank's gradients and switches are the parameters', until it waits."""
        self.rank = rank
        for own, gradient in turn.gradients.items():
            own.grad, own.requires_grad = gradient, turn.trainable[own]
        setattr(self.module, TOGGLED, turn.toggled)
        with self.virtual.as_rank(rank):
            turn.resume()
        if turn.error is not None:
            raise turn.error
        turn.gradients = {own: own.grad for own in turn.gradients}
        turn.trainable = {own: own.requires_grad for own in turn.gradients}
        turn.toggled = getattr(self.module, TOGGLED, None)

    def _add(self, parameters: Sequence[nn.Parameter]) -> None:
        """The ranks' backward passes, added to what each had."""
        waiting = [turn for turn in self.turns if not turn.done]
        if not waiting:
            return
        if len(waiting) < len(self.turns):
            raise RuntimeError("the ranks of strategy=virtual do not come to the same number of backward passes")
        for own in parameters:
            parts = [part for turn in self.turns if (part := turn.contribution[own]) is not None]
            for turn in self.turns:
                held = turn.gradients[own]
                if parts:
                    total = torch.stack(parts).sum(0)
                    turn.gradients[own] = total if held is None else held + total

    def _end(self) -> None:
        """No thread waits on."""
        for turn in self.turns:
            if not turn.done:
                turn.ended = True
                turn.go.set()
            turn.thread.join(10.0)


class Stepless:
    """An optimizer, or a schedule, as a virtual rank above 0 has it: rank 0 steps for all."""

    def __init__(self, own: Any) -> None:
        self.own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def step(self, *arguments: Any, closure: Callable[[], Any] | None = None, **named: Any) -> Any:
        """The closure alone, whose backward pass is awaited."""
        call = closure or next(filter(callable, arguments), None)
        return None if call is None else call()


def stepless(found: Any) -> Any:
    """One, several or none."""
    return [Stepless(own) for own in found] if isinstance(found, list) else None if found is None else Stepless(found)


def _autocast() -> Any:
    """The autocast of this thread, for others."""
    if not torch.is_autocast_enabled("cpu"):
        return nullcontext
    dtype = torch.get_autocast_dtype("cpu")
    return lambda: torch.autocast("cpu", dtype, cache_enabled=False)


def _within(context: Callable[[], Any], step: Callable[[], Any]) -> Callable[[], Any]:
    def within() -> Any:
        with context():
            return step()

    return within
