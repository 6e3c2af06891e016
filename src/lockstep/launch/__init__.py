"""Start the ranks of a world, each running the engine; hand back rank 0's result, or raise the first error.

The parent computes nothing itself and stays as it was: environment, signal handlers, random generators, process group.
"""

import os
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

from lockstep.ending import Stopped
from lockstep.launch.failure import RankFailed
from lockstep.launch.place import Place, check_outside, outside, speaks
from lockstep.launch.private_dir import job_folder, own_caches, private_folder, remove_private_folder
from lockstep.launch.server import warm_up
from lockstep.launch.undisturbed import undisturbed
from lockstep.refusal import refuse, typed_in_shell
from lockstep.streams import open_closed
from lockstep.world import Startable, World

__all__ = [
    "Place",
    "RankFailed",
    "check_launchable",
    "leave",
    "outside",
    "place_held",
    "private_folder",
    "say_last",
    "speaks",
    "start",
    "warm_up",
]


def check_launchable(world: World) -> None:
    """Refuse a world whose ranks cannot be started from here."""
    place = outside()
    if place is not None:
        check_outside(place, world)
    elif world.num_nodes > 1:
        why = "a command starts ranks on its own machine only"
        instead = f"num_nodes=1, or start it on every machine by torchrun --nnodes={world.num_nodes}"
        raise refuse("num_nodes", world.num_nodes, why, f"{instead} --nproc-per-node={world.local_world_size} …")


def place_held(world: World) -> AbstractContextManager[None]:
    """Around all that a job starts: where ranks were started from outside, they stay in one process group."""
    place = outside()
    if place is None:
        return nullcontext()
    from lockstep.launch.guest import membership

    return membership(world, place)


def leave(status: int) -> NoReturn:
    """End a process that was started from outside as a rank, its work done, at once.

    At the interpreter's own end gloo's threads now and then abort it. Ranks that we start end so too, as
    multiprocessing's children do.
    """
    remove_private_folder()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def say_last(said: str, place: Place | None) -> None:
    """Why the command ends, once for all its ranks."""
    print(end="", flush=True)  # a program without streams may have called `run`
    if speaks(place):
        print(said, file=sys.stderr, flush=True)
    elif place is not None and place.local_rank == 0:  # the first of another machine, whose trouble may be its own
        print(f"rank {place.rank}: {said}", file=sys.stderr, flush=True)


def end_stopped(world: World, stopped: Stopped, number: int, place: Place | None) -> NoReturn:
    """The end of a command whose ranks were asked to stop, and did."""
    going_on = f"resume=true {typed_in_shell('hydra.run.dir', world.folder)} goes on from there"
    say_last(f"{signal.Signals(number).name}: {stopped}, which its checkpoint holds; {going_on}.", place)
    raise SystemExit(128 + number)


def start(work: Startable, engine: str) -> Any:
    """Run `engine` (a module with a `run(work, place)`) on every rank of the work's world; what it returns on rank 0.

    Raises:
        Refusal: a rank met something that cannot be, or there is no place to meet.
        RankFailed: a rank failed; the others have been ended.
        SystemExit: a signal ended the ranks.
    """
    place = outside()
    if place is not None:  # a member of the group, see `place_held`
        from lockstep.launch.guest import work_as_guest

        result = work_as_guest(work, engine, place)
        if isinstance(result, Stopped):
            end_stopped(work.world, result, result.number, place)
        return result
    open_closed()
    if work.world.in_process:
        from lockstep.launch.in_process import run_here

        result, asked = run_here(work, engine)
    else:
        result, asked = run_apart(work, engine)
    if isinstance(result, Stopped):
        end_stopped(work.world, result, asked[0], None)
    if asked:  # too late for the ranks, which have done what is left
        raise SystemExit(128 + asked[0])
    return result


def run_apart(work: Startable, engine: str) -> tuple[Any, list[int]]:
    """What rank 0 of processes of their own returns, or Stopped; and the signals by which they were asked to stop."""
    warm_up(engine)
    from lockstep.launch.meeting import opened
    from lockstep.launch.processes import STARTS
    from lockstep.launch.worker import Job

    with job_folder() as folder, undisturbed(folder) as asked, opened(work.world, folder) as meeting:
        environment = {**own_caches(), **os.environ}
        return STARTS[work.world.start](Job(work, engine, meeting, folder, environment)), asked
