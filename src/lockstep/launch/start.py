"""Start the ranks of a world, each running the engine; return rank 0's result, or raise the first error."""

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lockstep.base.config_error import ConfigError, shell_quote_override
from lockstep.base.errors import TrainingInterrupted
from lockstep.base.private_api.cpython import kill_forkserver
from lockstep.launch import forkserver
from lockstep.launch.external_launcher import program_group, rank_from_env, rendezvous_variables
from lockstep.launch.failure import delay_exit, format_error, lost_a_peer, print_exit_reason, timed_out, timeout_text
from lockstep.launch.private_dir import job_folder, private_folder
from lockstep.launch.signals import end_command, end_with_parent, first_signal_requests_stop, signal_handlers
from lockstep.launch.topology import RankContext
from lockstep.plan.targets.from_python import pickled_main
from lockstep.plan.world import Launchable, World


@contextmanager
def external_process_group(world: World) -> Iterator[bool]:
    """Keep a rank of torchrun or SLURM in one process group for the whole command; yield whether this is one."""
    context = rank_from_env()
    if context is None or program_group():
        yield False
        return
    from lockstep.launch.rendezvous import group_file
    from lockstep.launch.worker import process_group

    if "TORCHELASTIC_RUN_ID" in os.environ:
        end_with_parent()  # torchrun's agent
    variables = rendezvous_variables(os.environ)
    os.environ.update({**context.variables, **variables})
    address = variables["MASTER_ADDR"] if world.num_nodes > 1 else socket.gethostname()
    name = f".lockstep-group-{os.geteuid()}-{address}-{variables['MASTER_PORT']}"
    with (
        signal_handlers(end_command),
        failures_reported(world, context),
        group_file(world, Path(world.folder).parent / name, context) as path,
        process_group(world, context, path),
    ):
        try:
            yield True
        finally:
            if context.rank == 0:
                path.unlink(missing_ok=True)


@contextmanager
def failures_reported(world: World, context: RankContext) -> Iterator[None]:
    """Report an error and exit with status 1; end torchrun too if it would wait for an unreachable machine."""
    terminal = os.dup(2)
    try:
        yield
    except ConfigError:
        raise
    except (Exception, KeyboardInterrupt) as error:
        if lost_a_peer(error):
            delay_exit()
        if timed_out(error):
            where = "on another machine, or the link to it," if world.num_nodes > 1 else "of the run"
            error.add_note(f"A rank {where} did not answer within {timeout_text(world)}.")
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "none")
        is_last = restarts == os.environ.get("TORCHELASTIC_MAX_RESTARTS")
        is_cut_off = is_last and world.num_nodes > 1 and timed_out(error)
        message = f"rank {context.rank} failed: {format_error(error)}"
        file = os.environ.get("TORCHELASTIC_ERROR_FILE")
        if file is None or is_cut_off:
            os.write(terminal, f"{message}\n".encode())
        else:  # for torchrun's report
            extra = {"py_callstack": message, "timestamp": str(int(time.time()))}
            Path(file).write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))
        if is_cut_off:  # torchrun waits a quarter of an hour for an unreachable machine, and handles no signal
            os.kill(os.getppid(), signal.SIGKILL)
        raise SystemExit(1) from None
    finally:
        os.close(terminal)


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
