"""Start the ranks of a world, each running the engine; return rank 0's result, or raise the first error."""

import os
import signal
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from lockstep.config_error import shell_quote_override
from lockstep.errors import TrainingInterrupted
from lockstep.launch import forkserver
from lockstep.launch.external_launcher import program_group, rank_from_env
from lockstep.launch.failure import print_exit_reason
from lockstep.launch.private_dir import job_folder, private_folder
from lockstep.launch.stop import first_signal_requests_stop
from lockstep.launch.topology import RankContext
from lockstep.private_api.cpython import kill_forkserver
from lockstep.targets.from_python import pickled_main
from lockstep.world import Launchable, World


def external_process_group(world: World) -> AbstractContextManager[bool]:
    """Keep a rank of torchrun or SLURM in one process group for all engines of a job; False if this is no such rank."""
    context = rank_from_env()
    if context is None or program_group():
        return nullcontext(False)
    from lockstep.launch.external_worker import joined

    return joined(world, context)


def start_ranks(work: Launchable, engine: str, is_launched: bool = False) -> Any:
    """Run `engine` (a module with a `run(work, context)`) on every rank of the work's world; return rank 0's result.

    is_launched: whether this process is a rank of torchrun or SLURM, in its process group.

    Raises:
        ConfigError: invalid input that only a rank can see, or the rendezvous cannot be opened.
        RankFailed: a rank failed; the others have been ended.
        SystemExit: a signal stopped the ranks.
    """
    context = rank_from_env() if is_launched or program_group() else None
    if context is not None or work.world.in_process:
        if context is None:
            kill_forkserver()  # the command may have started one before it knew
        from lockstep.launch.in_process import run_in_process

        result, stops = run_in_process(work, engine, context or RankContext(0, 1, 0, 1), is_launched)
    else:
        forkserver.start_forkserver(engine)
        result, stops = run_processes(work, engine)
    number = stops[0] if stops else signal.SIGTERM  # a rank of an external launcher may have heard it from another
    if isinstance(result, TrainingInterrupted):
        resume = f"resume=true {shell_quote_override('hydra.run.dir', work.world.folder)} resumes from there"
        outcome = (
            f"which its checkpoint holds; {resume}" if getattr(work, "saves", True) else "and no checkpoint is kept"
        )
        print_exit_reason(f"{signal.Signals(number).name}: {result}, {outcome}.", context)
    if stops or isinstance(result, TrainingInterrupted):  # the first alone: too late for the ranks, training was done
        raise SystemExit(128 + number)
    return result


def run_processes(work: Launchable, engine: str) -> tuple[Any, list[int]]:
    """Return what rank 0 returns, or TrainingInterrupted; and the signals that requested a stop."""
    private_folder()  # an unusable one is an error before torch is imported: dill, which torch may use, needs one too
    from lockstep.launch.attempt import run_attempts
    from lockstep.launch.rendezvous import group_file, master_variables
    from lockstep.launch.worker import LaunchSpec

    main = pickled_main(work)
    with (
        job_folder() as folder,
        first_signal_requests_stop(folder) as stops,
        forkserver.hide_main_module(),
        group_file(work.world, folder / "group") as path,
    ):
        environment = {**os.environ, **master_variables(work.world)}
        return run_attempts(LaunchSpec(work, engine, path, folder, environment, main)), stops
