"""The command as a rank that torchrun or SLURM started: it starts no process itself."""

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lockstep.config_error import ConfigError
from lockstep.launch import failure
from lockstep.launch.external_launcher import rendezvous_variables
from lockstep.launch.rendezvous import group_file
from lockstep.launch.signals import end_command, end_with_parent, signal_handlers
from lockstep.launch.topology import RankContext
from lockstep.launch.worker import process_group
from lockstep.world import World


@contextmanager
def joined(world: World, context: RankContext) -> Iterator[bool]:
    """Keep this process in one process group for the whole command; yield True."""
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
        if failure.lost_a_peer(error):
            failure.delay_exit()
        if failure.timed_out(error):
            where = "on another machine, or the link to it," if world.num_nodes > 1 else "of the run"
            error.add_note(f"A rank {where} did not answer within {failure.timeout_text(world)}.")
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "none")
        is_last = restarts == os.environ.get("TORCHELASTIC_MAX_RESTARTS")
        is_cut_off = is_last and world.num_nodes > 1 and failure.timed_out(error)
        message = f"rank {context.rank} failed: {failure.format_error(error)}"
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
