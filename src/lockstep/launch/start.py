"""Start the ranks of a world, each running the engine; return rank 0's result, or raise the first error."""

import multiprocessing.sharedctypes
import os
import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.base.config_error import ConfigError, shell_quote_override
from lockstep.base.errors import TrainingInterrupted
from lockstep.base.private_api.cpython import kill_forkserver
from lockstep.launch import failure, forkserver
from lockstep.launch.external_launcher import is_rank_zero, rank_from_env, rendezvous_variables
from lockstep.launch.machine import default_threads
from lockstep.launch.ranks import Ranks
from lockstep.launch.signals import end_command, end_with_parent, first_signal_requests_stop, signal_handlers
from lockstep.launch.topology import LaunchSpec, RankContext
from lockstep.plan.schemas.run import ProcessGroup
from lockstep.plan.targets.from_python import pickled_main
from lockstep.plan.world import Launchable, World


@contextmanager
def external_process_group(world: World) -> Iterator[None]:
    """Keep a rank of torchrun or SLURM in one process group for the whole command; no-op in other processes."""
    context = rank_from_env()
    if context is None:
        yield
        return
    from lockstep.launch.rendezvous import create_shared
    from lockstep.launch.worker import process_group

    if "TORCHELASTIC_RUN_ID" in os.environ:
        end_with_parent()  # torchrun's agent
    variables = rendezvous_variables(os.environ)
    os.environ.update({**context.variables, **variables})
    address = variables["MASTER_ADDR"] if world.num_nodes > 1 else socket.gethostname()
    path = Path(world.folder).parent / f".lockstep-group-{os.geteuid()}-{address}-{variables['MASTER_PORT']}"
    with signal_handlers(end_command):
        try:
            create_shared(path)
            with process_group(world, context, path):
                yield
        except (ConfigError, SystemExit):
            raise
        except BaseException as error:
            kind = failure.kind_of(error)
            if kind == failure.LOST_PEER:  # which has failed first
                failure.delay_exit()
            if kind == failure.TIMEOUT:
                where = "on another machine, or the link to it," if world.num_nodes > 1 else "of the run"
                error.add_note(f"A rank {where} did not answer within {failure.timeout_text(world)}.")
            raise failure.RankFailed(context.rank, failure.format_error(error)) from None
        finally:
            if context.rank == 0:
                path.unlink(missing_ok=True)


def start_ranks(work: Launchable, engine: str) -> Any:
    """Run `engine` (a module with a `run(work, context)`) on every rank of the work's world; return rank 0's result.

    A failed rank raises a ConfigError or RankFailed, and a signal SystemExit; then the others have been ended.
    """
    launched = rank_from_env()
    if launched or work.world.in_process:
        if launched is None:
            kill_forkserver()  # the command may have started one before it knew
        from lockstep.launch.worker import run_in_process  # with torch

        result, stops = run_in_process(work, engine, launched)
    else:
        forkserver.start_forkserver(engine)
        result, stops = run_processes(work, engine)
    number = stops[0] if stops else signal.SIGTERM  # a rank of an external launcher may have heard it from another
    if isinstance(result, TrainingInterrupted) and is_rank_zero():
        resume = f"resume=true {shell_quote_override('hydra.run.dir', work.world.folder)}"
        reason = f"{signal.Signals(number).name}: {result}, which its checkpoint holds; {resume} resumes from there."
        failure.print_exit_reason(reason, None)
    if stops or isinstance(result, TrainingInterrupted):  # the first alone: too late for the ranks, training was done
        raise SystemExit(128 + number)
    return result


def run_processes(work: Launchable, engine: str) -> tuple[Any, list[int]]:
    """Return what rank 0 returns, or TrainingInterrupted; and the signals that requested a stop."""
    file = forkserver.private_folder() / f"group-{secrets.token_hex(8)}"
    flags, main = multiprocessing.sharedctypes.RawArray("b", 2), pickled_main(work)
    with first_signal_requests_stop(flags) as stops, forkserver.hide_main_module():
        ranks = Ranks(LaunchSpec(work, engine, file, flags, dict(os.environ), main))
        try:
            while not ranks.have_ended():
                pass
            return ranks.results[0], stops
        finally:
            ranks.end()


@dataclass(frozen=True)
class Call:
    """A call as the work of the only rank of a world, whose engine is this file."""

    world: World
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a module's function in a child of the fork server, which itself never imports code of the user's."""
    group = ProcessGroup("auto", 1.0)
    world = World("single", False, 1, 1, "cpu", False, default_threads(1), group, str(forkserver.private_folder()))
    try:
        return run_processes(Call(world, function, arguments), __name__)[0]
    except failure.RankFailed as error:
        raise ConfigError(f"The process that imports your code has failed: {error.reason}.") from None


def run(work: Call, _context: RankContext) -> Any:
    """Make the call in the child, as its engine."""
    try:
        return work.function(*work.arguments)
    except SystemExit as error:
        reason = f"Your code calls sys.exit({error.code!r}) while it is imported."
        raise ConfigError(reason) from None
