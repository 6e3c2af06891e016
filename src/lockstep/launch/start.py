"""Start the ranks of a world, each running the engine; return rank 0's result, or raise the first error."""

import os
import signal
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

from lockstep.config_error import shell_quote_override
from lockstep.errors import TrainingInterrupted
from lockstep.launch import forkserver
from lockstep.launch.external_launcher import rank_from_env
from lockstep.launch.failure import print_exit_reason
from lockstep.launch.private_dir import cache_variables, job_folder, private_folder
from lockstep.launch.stop_handler import first_signal_requests_stop
from lockstep.launch.topology import RankContext
from lockstep.private_api.cpython import kill_forkserver
from lockstep.streams import open_closed
from lockstep.targets.from_python import pickled_main
from lockstep.world import Launchable, World

if TYPE_CHECKING:
    from lockstep.launch.external_worker import ExternalRank


def external_process_group(world: World) -> "AbstractContextManager[ExternalRank | None]":
    """Keep a rank of an external launcher in one process group for all engines of a job; None if this is no rank."""
    context = rank_from_env()
    if context is None:
        return nullcontext()
    from lockstep.launch.external_worker import ExternalRank

    return ExternalRank(world, context).joined()


def start_ranks(work: Launchable, engine: str, external: "ExternalRank | None" = None) -> Any:
    """Run `engine` (a module with a `run(work, context)`) on every rank of the work's world; return rank 0's result.

    Raises:
        ConfigError: invalid input that only a rank can see, or the rendezvous cannot be opened.
        RankFailed: a rank failed; the others have been ended.
        SystemExit: a signal stopped the ranks.
    """
    requests: list[int] = []
    if external is not None:
        result = external.run(work, engine)
    elif work.world.in_process:
        open_closed()
        kill_forkserver()  # the command may have started one before it knew
        from lockstep.launch.in_process import run_in_process

        result, requests = run_in_process(work, engine)
    else:
        open_closed()
        forkserver.start_forkserver(engine)
        result, requests = run_processes(work, engine)
    if isinstance(result, TrainingInterrupted):
        number = requests[0] if requests else result.number
        end_stopped(work, result, number, external.context if external else None)
    if requests:  # too late for the ranks: training was done
        raise SystemExit(128 + requests[0])
    return result


def end_stopped(work: Launchable, stopped: TrainingInterrupted, number: int, context: RankContext | None) -> NoReturn:
    resume = f"resume=true {shell_quote_override('hydra.run.dir', work.world.folder)} resumes from there"
    saves = getattr(work, "saves", True)
    outcome = f"which its checkpoint holds; {resume}" if saves else "and no checkpoint is kept"
    print_exit_reason(f"{signal.Signals(number).name}: {stopped}, {outcome}.", context)
    raise SystemExit(128 + number)


def run_processes(work: Launchable, engine: str) -> tuple[Any, list[int]]:
    """Return what rank 0 returns, or TrainingInterrupted; and the signals that requested a stop."""
    private_folder()  # an unusable one is an error before torch is imported: dill, which torch may use, needs one too
    from lockstep.launch.attempt import run_attempts
    from lockstep.launch.rendezvous import group_file, master_variables
    from lockstep.launch.worker import LaunchSpec

    main = pickled_main(work)
    with (
        job_folder() as folder,
        first_signal_requests_stop(folder) as requests,
        forkserver.hide_main_module(),
        group_file(work.world, folder / "group") as path,
    ):
        environment = {**cache_variables(), **os.environ, **master_variables(work.world)}
        return run_attempts(LaunchSpec(work, engine, path, folder, environment, main)), requests
