"""The command as a rank that torchrun, SLURM, mpirun or a program started: it starts no process itself."""

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from lockstep.config_error import ConfigError
from lockstep.errors import TrainingInterrupted
from lockstep.launch import failure
from lockstep.launch.external_launcher import rendezvous_variables
from lockstep.launch.in_process import restored_process
from lockstep.launch.private_dir import cache_variables, private_folder
from lockstep.launch.rendezvous import group_file
from lockstep.launch.signals import end_command, end_with_parent, signal_handlers
from lockstep.launch.stop_request import SignalRequest
from lockstep.launch.topology import RankContext
from lockstep.launch.worker import process_group, redirect_output, run_engine
from lockstep.parallel.messages import all_gather_bytes
from lockstep.schemas.plan_json import from_json, to_json
from lockstep.world import Launchable, World


@dataclass
class ExternalRank:
    """This process as a rank, and the store of its process group.

    in_program: whether a program has formed the group and then called `run`: group and process stay as they are.
    """

    world: World
    context: RankContext
    store: Store | None = None
    in_program: bool = field(default_factory=dist.is_initialized)

    @contextmanager
    def joined(self) -> Iterator["ExternalRank"]:
        """Stay in one process group for the whole command."""
        if self.in_program:
            with restored_process(), process_group(self.world, self.context, Path()) as self.store:
                os.environ.update({**cache_variables(), **os.environ, **self.context.variables})
                yield self
            return
        if "TORCHELASTIC_RUN_ID" in os.environ:
            end_with_parent()  # torchrun's agent
        with signal_handlers(end_command):
            variables = rendezvous_variables(os.environ)
            os.environ.update({**cache_variables(), **os.environ, **self.context.variables, **variables})
            address = variables["MASTER_ADDR"] if self.world.num_nodes > 1 else socket.gethostname()
            name = f".lockstep-group-{os.geteuid()}-{address}-{variables['MASTER_PORT']}"
            with (
                self.failures_reported(),
                group_file(self.world, Path(self.world.folder).parent / name, self.context) as path,
                process_group(self.world, self.context, path) as self.store,
            ):
                if self.store is not None:
                    failure.write_stack_on_signal(stack := private_folder() / "stack")
                    self.store.set(f"process {self.context.rank}", f"{socket.gethostname()} {os.getpid()} {stack}")
                try:
                    yield self
                finally:
                    if self.context.rank == 0:
                        path.unlink(missing_ok=True)

    def run(self, work: Launchable, engine: str) -> Any:
        """Run the engine in this process, which is a member of the group."""
        with self.failures_reported():
            if dist.is_initialized():  # every rank composed its own plan, and the clock names the run's folder
                work = from_json(all_gather_bytes(to_json(work).encode())[0].decode())
            if not self.in_program:
                redirect_output(Path(work.world.folder), self.context)
            stop = SignalRequest(self.context.rank, self.context.world_size, self.store)
            try:
                result = run_engine(work, engine, replace(self.context, stop=stop))
                if isinstance(result, TrainingInterrupted):
                    result.number = stop.number
                return result
            except Exception as error:
                if stop.accepted and failure.lost_a_peer(error):
                    raise SystemExit(128 + stop.number) from None  # the same signal ended the peer
                if work.world.num_nodes > 1 and failure.timed_out(error):
                    limit = failure.timeout_text(work.world)
                    error.add_note(f"A rank on another machine, or the link to it, did not answer within {limit}.")
                raise

    @contextmanager
    def failures_reported(self) -> Iterator[None]:
        """Report an error and exit with status 1; end torchrun too if it would wait for an unreachable machine."""
        terminal = os.dup(2)
        try:
            yield
        except ConfigError:
            raise
        except (Exception, KeyboardInterrupt) as error:
            if self.in_program:
                raise failure.failure_report(error, self.context.rank).error from None
            if failure.lost_a_peer(error):
                failure.delay_exit()
            absent = self._absent_rank() if failure.timed_out(error) else None
            restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "none")
            is_last = restarts == os.environ.get("TORCHELASTIC_MAX_RESTARTS")
            is_cut_off = is_last and self.world.num_nodes > 1 and failure.timed_out(error)
            write_report(absent or error, self.context.rank, terminal, to_terminal=is_cut_off)
            if is_cut_off:  # torchrun waits a quarter of an hour for an unreachable machine, and handles no signal
                os.kill(os.getppid(), signal.SIGKILL)
            raise SystemExit(1) from None
        finally:
            os.close(terminal)

    def _absent_rank(self) -> failure.RankFailed | None:
        """Return the failure of a rank of this machine for which this one waited in vain, if there is one."""
        keys, stacks = [f"process {rank}" for rank in range(self.context.world_size)], {}
        if self.store is not None:
            self.store.delete_key(keys[self.context.rank])  # as peers do that wait in vain, too
            time.sleep(failure.PEER_DELAY)
            for rank, key in enumerate(keys):
                if self.store.check([key]):
                    host, pid, path = self.store.get(key).decode().split(" ", 2)
                    if host == socket.gethostname():
                        stacks[rank] = int(pid), Path(path)
        return failure.absent_rank(stacks, self.world)


def write_report(error: BaseException, rank: int, terminal: int, to_terminal: bool) -> None:
    """Write why this rank ends: to torchrun's error file for its report; if there is none, to the terminal."""
    message = (
        str(error) if isinstance(error, failure.RankFailed) else f"rank {rank} failed: {failure.format_error(error)}"
    )
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if file is None or to_terminal:
        os.write(terminal, f"{message}\n".encode())
    else:
        extra = {"py_callstack": message, "timestamp": str(int(time.time()))}
        Path(file).write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))
