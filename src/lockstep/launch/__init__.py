"""Start the ranks of a world, each running the engine; hand back rank 0's result, or raise the first error.

The parent computes nothing itself and stays as it was: environment, signal handlers, random generators, process group.
"""

import os
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

from lockstep.colour import painted
from lockstep.config_error import shell_quote_override
from lockstep.errors import TrainingInterrupted
from lockstep.launch.external_launcher import check_launchable, rank_from_env
from lockstep.launch.failure import RankFailed, let_others_end_first
from lockstep.launch.forkserver import end_servers_on_signals, start_forkserver
from lockstep.launch.preserved_process import preserved_process
from lockstep.launch.private_dir import job_folder, own_caches, private_folder, remove_private_folder
from lockstep.launch.topology import RankContext, is_rank_zero
from lockstep.private_api.cpython import kill_forkserver
from lockstep.streams import open_closed
from lockstep.world import Launchable, World

__all__ = [
    "RankContext",
    "RankFailed",
    "check_launchable",
    "end_servers_on_signals",
    "exit_now",
    "external_process_group",
    "is_rank_zero",
    "let_rank_zero_print",
    "print_exit_reason",
    "private_folder",
    "rank_from_env",
    "start",
    "start_forkserver",
]


def external_process_group(world: World) -> AbstractContextManager[None]:
    """Ranks of an external launcher stay in one process group for all engines of a job; else nothing."""
    context = rank_from_env()
    if context is None:
        return nullcontext()
    from lockstep.launch.external_worker import joined_group

    return joined_group(world, context)


def exit_now(status: int) -> NoReturn:
    """Exit a rank of an external launcher without the interpreter's own end, at which gloo's threads may abort.

    Ranks that the command starts exit like that, too, as multiprocessing's children do.
    """
    remove_private_folder()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def print_exit_reason(reason: str, context: RankContext | None) -> None:
    """Print why the command ends, once for all its ranks."""
    print(end="", flush=True)  # a program without streams may have called `run`
    if is_rank_zero(context):
        print(_told(reason), file=sys.stderr, flush=True)
    elif context is not None and context.local_rank == 0:  # of another machine, whose failure may be its own
        print(f"rank {context.rank}: {reason}", file=sys.stderr, flush=True)


def let_rank_zero_print(context: RankContext | None) -> None:
    """A rank that prints nothing ends behind the one that does."""
    if context is not None and context.local_rank > 0:
        let_others_end_first()


def _told(reason: str) -> str:
    """What is wrong stands before the first colon: red in a terminal."""
    first, colon, rest = reason.partition(": ")
    return f"{painted(first, 'red', sys.stderr)}{colon}{rest}" if colon else reason


def end_stopped(work: Launchable, stopped: TrainingInterrupted, number: int, context: RankContext | None) -> NoReturn:
    """Exit after ranks stopped on request."""
    instruction = f"resume=true {shell_quote_override('hydra.run.dir', work.world.folder)} resumes from there"
    held = f"which its checkpoint holds; {instruction}" if getattr(work, "saves", True) else "and no checkpoint is kept"
    print_exit_reason(f"{signal.Signals(number).name}: {stopped}, {held}.", context)
    raise SystemExit(128 + number)


def start(work: Launchable, engine: str) -> Any:
    """Run `engine` (a module with a `run(work, context)`) on every rank of the work's world; what it returns on rank 0.

    Raises:
        ConfigError: invalid input that only a rank can see, or the rendezvous cannot be opened.
        RankFailed: a rank failed; the others have been ended.
        SystemExit: a signal ended the ranks.
    """
    context = rank_from_env()
    if context is not None:  # within `external_process_group`
        from lockstep.launch.external_worker import run_external

        result = run_external(work, engine, context)
        if isinstance(result, TrainingInterrupted):
            end_stopped(work, result, result.number, context)
        return result
    open_closed()
    if work.world.in_process:
        kill_forkserver()  # the command may have started one before it knew
        from lockstep.launch.in_process import run_in_process

        result, requests = run_in_process(work, engine)
    else:
        result, requests = run_ranks(work, engine)
    if isinstance(result, TrainingInterrupted):
        end_stopped(work, result, requests[0], None)
    if requests:  # too late for the ranks: training was done
        raise SystemExit(128 + requests[0])
    return result


def run_ranks(work: Launchable, engine: str) -> tuple[Any, list[int]]:
    """What rank 0 returns, or TrainingInterrupted; and the signals that requested a stop."""
    start_forkserver(engine)
    private_folder()  # refused before torch is imported: dill, which torch takes where it is installed, wants one too
    from lockstep.launch.processes import LAUNCHERS
    from lockstep.launch.rendezvous import open_rendezvous
    from lockstep.launch.worker import LaunchSpec
    from lockstep.targets.main_module import pickled_main

    main = pickled_main(work)
    with (
        job_folder() as folder,
        preserved_process(folder) as requests,
        open_rendezvous(work.world, folder) as rendezvous,
    ):
        environment = {**own_caches(), **os.environ}
        spec = LaunchSpec(work, engine, rendezvous, folder, environment, main)
        return LAUNCHERS[work.world.start](spec), requests
