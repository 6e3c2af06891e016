"""Start the ranks of a plan, each running the engine; hand back rank 0's metrics, or raise the first error.

The parent computes nothing itself and stays as it was: environment, signal handlers, random generators, process group.
"""

import logging
import multiprocessing.forkserver
import os
import random
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lockstep.launch.failure import RankFailed
from lockstep.launch.place import Place, check_outside, outside
from lockstep.plan import Plan
from lockstep.record import Metrics
from lockstep.refusal import refuse

__all__ = ["Place", "RankFailed", "check_launchable", "outside", "start"]

AGENT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


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
    """Undo what the elastic agent does to its process, and keep its log to itself: errors reach us raised."""
    environment, numbers = dict(os.environ), random.getstate()
    handlers = {number: signal.getsignal(number) for number in AGENT_SIGNALS}
    loggers = [logging.getLogger(name) for name in ("torch.distributed.elastic", "torch.multiprocessing")]
    loggers += [
        logging.getLogger(name)
        for name in logging.root.manager.loggerDict
        if name.startswith(("torch.distributed.elastic.", "torch.multiprocessing."))
    ]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # else the agent hosts a store on every interface
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        random.setstate(numbers)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        for number, handler in handlers.items():
            signal.signal(number, handler)
