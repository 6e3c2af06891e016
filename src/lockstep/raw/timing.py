"""Seconds of training, validation left out."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lockstep.parallel.synchronize import synchronize

if TYPE_CHECKING:
    from lockstep.raw.training import Training


@contextmanager
def training_time(run: "Training", sign: int = 1) -> Iterator[None]:
    """Add the seconds within to those of training; by the sign -1 take them off."""
    synchronize(run.session.device)
    began = time.perf_counter()
    yield
    synchronize(run.session.device)
    run.seconds += sign * (time.perf_counter() - began)
