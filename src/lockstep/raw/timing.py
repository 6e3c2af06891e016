"""Seconds of training, validation left out."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from lockstep.parallel import synchronize
from lockstep.session import Session

if TYPE_CHECKING:
    from lockstep.own_module.session import ModuleSession


class Timed(Protocol):
    """What trains. `seconds` are those of training alone."""

    @property
    def session(self) -> "Session | ModuleSession": ...

    seconds: float


@contextmanager
def training_time(run: Timed, sign: int = 1) -> Iterator[None]:
    """What is within counts as training; by the sign -1 something within it does not."""
    synchronize(run.session.device)
    began = time.perf_counter()
    yield
    synchronize(run.session.device)
    run.seconds += sign * (time.perf_counter() - began)
