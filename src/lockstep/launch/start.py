"""Start the ranks of a world, each running the engine; return rank 0's result, or raise the first error.

The parent computes nothing itself and stays as it was: environment, signal handlers, random generators, process group.
"""

import os
import signal
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

from lockstep.config_error import shell_quote_override
from lockstep.errors import TrainingInterrupted
from lockstep.launch import forkserver
from lockstep.launch.exit import print_exit_reason
from lockstep.launch.external_launcher import rank_from_env
from lockstep.launch.preserved_process import preserved_process
from lockstep.launch.private_dir import job_folder, own_caches, private_folder
from lockstep.launch.topology import RankContext
from lockstep.private_api.cpython import kill_forkserver
from lockstep.streams import open_closed
from lockstep.targets.main_module import pickled_main
from lockstep.world import Launchable, World


def external_process_group(world: World) -> AbstractContextManager[None]:
    """Ranks of an external launcher stay in one process group for all engines of a job; else nothing."""
    context = rank_from_env()
    if context is None:
        return nullcontext()
    from lockstep.launch.external_worker import joined_group

    return joined_group(world, context)


def end_stopped(work: Launchable, stopped: TrainingInterrupted, number: int, context: RankContext | None) -> NoReturn:
    """Exit after ranks stopped on request."""
    instruction = f"resume=true {shell_quote_override('hydra.run.dir', work.world.folder)} resumes from there"
    held = f"which its checkpoint holds; {instruction}" if getattr(work, "saves", True) else "and no checkpoint is kept"
    print_exit_reason(f"{signal.Signals(number).name}: {stopped}, {held}.", context)
    raise SystemExit(128 + number)


def start_ranks(work: Launchable, engine: str) -> Any:
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
        result, requests = run_processes(work, engine)
    if isinstance(result, TrainingInterrupted):
        end_stopped(work, result, requests[0], None)
    if requests:  # too late for the ranks: training was done
        raise SystemExit(128 + requests[0])
    return result


def run_processes(work: Launchable, engine: str) -> tuple[Any, list[int]]:
    """What rank 0 returns, or TrainingInterrupted; and the signals that requested a stop."""
    forkserver.start_forkserver(engine)
    private_folder()  # refused before torch is imported: dill, which torch takes where it is installed, wants one too
    from lockstep.launch.open_rendezvous import open_rendezvous
    from lockstep.launch.processes import LAUNCHERS
    from lockstep.launch.worker import LaunchSpec

    main = pickled_main(work)
    with (
        job_folder() as folder,
        preserved_process(folder) as requests,
        open_rendezvous(work.world, folder) as rendezvous,
    ):
        environment = {**own_caches(), **os.environ}
        spec = LaunchSpec(work, engine, rendezvous, folder, environment, main)
        return LAUNCHERS[work.world.start](spec), requests
