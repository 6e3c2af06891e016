"""Start the ranks of a plan, each running the engine; hand back rank 0's metrics, or raise the first error.

The parent computes nothing itself and stays as it was: environment, signal handlers, random generators, process group.
"""

import logging
import multiprocessing.forkserver
import os
import random
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from lockstep.launch.failure import RankFailed
from lockstep.launch.place import Place, check_outside, outside
from lockstep.plan import Plan
from lockstep.record import Metrics
from lockstep.refusal import refuse

__all__ = ["Place", "RankFailed", "check_launchable", "outside", "start"]

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def check_launchable(plan: Plan) -> None:
    """Refuse a plan whose ranks cannot be started from here."""
    place = outside()
    if place is not None:
        check_outside(place, plan.devices, plan.num_nodes)
    elif plan.num_nodes > 1:
        why = "a command starts ranks on its own machine only"
        instead = f"num_nodes=1, or start it on every machine by torchrun --nnodes={plan.num_nodes}"
        raise refuse("num_nodes", plan.num_nodes, why, f"{instead} --nproc-per-node={plan.devices} train.py …")


def start(plan: Plan, engine: str) -> Metrics:
    """Run `engine` (a module with a `run(plan, place)`) on every rank of the plan.

    Raises:
        Refusal: a rank met something that cannot be.
        RankFailed: a rank failed; the others have been ended.
    """
    place = outside()
    if place is not None:
        from lockstep.launch.guest import work_as_guest

        return work_as_guest(plan, engine, place)
    warm_up(engine)
    from lockstep.launch.processes import STARTS
    from lockstep.launch.worker import Job

    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder, undisturbed():
        return STARTS[plan.strategy.start](Job(plan, engine, Path(folder), dict(os.environ)))


def warm_up(engine: str) -> None:
    """Start the fork server, which imports the engine while this process goes on; once in the life of a process."""
    if "forkserver" in multiprocessing.get_all_start_methods():
        multiprocessing.forkserver.set_forkserver_preload([engine])
        multiprocessing.forkserver.ensure_running()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Undo what the elastic agent does to the process it runs in: to its environment and its random numbers."""
    environment, numbers = dict(os.environ), random.getstate()
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # else the agent hosts a store on every interface
    try:
        with own_signals(), silent_agents():
            yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        random.setstate(numbers)


@contextmanager
def own_signals() -> Iterator[None]:
    """Turn signals that end the command into SystemExit, so that its ranks and files go with it; then as before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
    for number in ENDING_SIGNALS:
        signal.signal(number, _exit_by)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit_by(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextmanager
def silent_agents() -> Iterator[None]:
    """Keep torch's launchers from logging what fails: it reaches us raised, and is told once."""
    packages = ("torch.distributed.elastic", "torch.multiprocessing")
    loggers = [logging.getLogger(name) for name in [*logging.root.manager.loggerDict] if name.startswith(packages)]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
