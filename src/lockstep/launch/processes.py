"""Start the ranks of a job on this machine and wait for them: by torch's elastic agent, or by torch.multiprocessing.

Both fork the ranks from the fork server; they differ in who supervises.
"""

import signal
import sys
import uuid
from collections.abc import Callable
from typing import Any

from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.elastic.agent.server.api import (
    RunResult,
    SimpleElasticAgent,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

from lockstep.launch.attempt import Attempt
from lockstep.launch.failure import RankFailed
from lockstep.launch.worker import LaunchSpec, run_rank

POLL_INTERVAL = 0.5
"""Seconds until a supervisor goes on waiting; what happens to a rank it sees at once."""


def by_elastic(job: LaunchSpec) -> Any:
    """Under torch's elastic agent, which starts the ranks anew where that is wanted."""
    return Agent(job).run().return_values[0]


def by_spawn(job: LaunchSpec) -> Any:
    """By torch.multiprocessing alone."""
    attempt = Attempt(job)
    try:
        while (returned := attempt.wait(POLL_INTERVAL)) is None:
            pass
        return returned[0]
    finally:
        attempt.end()


class Agent(SimpleElasticAgent):
    """Torch's agent, with the ranks of an attempt for its workers."""

    def __init__(self, job: LaunchSpec) -> None:
        world, self.run_id = job.work.world, uuid.uuid4().hex
        super().__init__(
            WorkerSpec(
                role="rank",
                local_world_size=world.local_world_size,
                entrypoint=run_rank,
                rdzv_handler=Alone(self.run_id),
                max_restarts=world.max_restarts,
                monitor_interval=1e-3,  # between two calls of _monitor_workers, which waits by itself
            )
        )
        self.job, self.left = job, world.max_restarts
        self.attempt: Attempt | None = None

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        most = self.job.work.world.max_restarts
        variables = {
            "TORCHELASTIC_RUN_ID": self.run_id,
            "TORCHELASTIC_RESTART_COUNT": str(most - self.left),
            "TORCHELASTIC_MAX_RESTARTS": str(most),
            "TORCHELASTIC_USE_AGENT_STORE": "False",
        }
        self.attempt = Attempt(self.job, most - self.left, variables)
        return {**self.attempt.pids}

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        """Raises what the ranks failed of, where they are not to be started anew."""
        assert self.attempt is not None
        try:
            returned = self.attempt.wait(POLL_INTERVAL)
        except RankFailed as failure:
            if failure.final or self.left == 0:
                raise
            self.left -= 1
            most = self.job.work.world.max_restarts
            *_, last = failure.reason.strip().splitlines()
            why = RankFailed(failure.rank, last)
            print(f"restart {most - self.left} of {most}: {why}", file=sys.stderr, flush=True)
            return RunResult(WorkerState.FAILED)
        return RunResult(WorkerState.HEALTHY if returned is None else WorkerState.SUCCEEDED, returned or {})

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        self._shutdown()

    def _shutdown(self, death_sig: signal.Signals = signal.SIGKILL, timeout: int = 30) -> None:
        """By SIGKILL, whatever is asked for: ranks take no notice of other signals."""
        if self.attempt is not None:
            self.attempt.end()


class Alone(RendezvousHandler):
    """The rendezvous of the agents of all machines, where there is but one."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id

    def get_backend(self) -> str:
        return "alone"

    def next_rendezvous(self) -> RendezvousInfo:
        return RendezvousInfo(HashStore(), 0, 1, RendezvousStoreInfo("127.0.0.1", 0))  # where ranks meet we tell them

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """Nobody else would join."""

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self.run_id

    def shutdown(self) -> bool:
        return True


STARTS: dict[str, Callable[[LaunchSpec], Any]] = {"elastic": by_elastic, "spawn": by_spawn}
