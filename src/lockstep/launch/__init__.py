"""Start the ranks of a plan, each running the engine; hand back rank 0's metrics, or raise the first error.

The parent computes nothing itself and stays as it was: environment, signal handlers, random generators, process group.
"""

import os
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from lockstep.launch.failure import RankFailed
from lockstep.launch.place import Place, check_outside, outside
from lockstep.launch.server import warm_up
from lockstep.launch.undisturbed import undisturbed
from lockstep.plan import Plan
from lockstep.record import Metrics
from lockstep.refusal import refuse

__all__ = ["Place", "RankFailed", "check_launchable", "outside", "place_held", "start", "warm_up"]


def check_launchable(plan: Plan) -> None:
    """Refuse a plan whose ranks cannot be started from here."""
    place = outside()
    if place is not None:
        check_outside(place, plan)
    elif plan.num_nodes > 1:
        why = "a command starts ranks on its own machine only"
        instead = f"num_nodes=1, or start it on every machine by torchrun --nnodes={plan.num_nodes}"
        raise refuse("num_nodes", plan.num_nodes, why, f"{instead} --nproc-per-node={plan.local_world_size} train.py …")


def place_held(plan: Plan) -> AbstractContextManager[None]:
    """Around all that a job starts: where ranks were started from outside, they stay in one process group."""
    place = outside()
    if place is None:
        return nullcontext()
    from lockstep.launch.guest import membership

    return membership(plan, place)


def start(plan: Plan, engine: str) -> Metrics:
    """Run `engine` (a module with a `run(plan, place)`) on every rank of the plan.

    Raises:
        Refusal: a rank met something that cannot be.
        RankFailed: a rank failed; the others have been ended.
    """
    place = outside()
    if place is not None:  # a member of the group, see `place_held`
        from lockstep.launch.guest import work_as_guest

        return work_as_guest(plan, engine, place)
    warm_up(engine)
    from lockstep.launch.processes import STARTS
    from lockstep.launch.worker import Job

    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder, undisturbed():
        return STARTS[plan.strategy.start](Job(plan, engine, Path(folder), dict(os.environ)))
