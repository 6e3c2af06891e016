"""Start the ranks of a job on this machine and wait for them: by torch's elastic agent, or by torch.multiprocessing.

Both fork the ranks from the fork server. The agent supervises them and can restart them.
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
"""Seconds of one wait for the ranks; the end of a rank ends it at once."""


def run_elastic(job: LaunchSpec) -> Any:
    """Under torch's elastic agent, which restarts the ranks up to max_restarts times."""
    return Agent(job).run().return_values[0]


def run_spawn(job: LaunchSpec) -> Any:
    """By torch.multiprocessing alone."""
    attempt = Attempt(job)
    try:
        while (returned := attempt.wait(POLL_INTERVAL)) is None:
            pass
        return returned[0]
    finally:
        attempt.end()


class Agent(SimpleElasticAgent):
    """torch's agent; its workers are the ranks of an Attempt."""

    def __init__(self, job: LaunchSpec) -> None:
        world, self.run_id = job.work.world, uuid.uuid4().hex
        super().__init__(
            WorkerSpec(
                role="rank",
                local_world_size=world.local_world_size,
                entrypoint=run_rank,
                rdzv_handler=SingleNodeRendezvous(self.run_id),
                max_restarts=world.max_restarts,
                monitor_interval=1e-3,  # between two calls of _monitor_workers, which waits by itself
            )
        )
        self.job, self.restarts_left = job, world.max_restarts
        self.attempt: Attempt | None = None

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        max_restarts = self.job.work.world.max_restarts
        variables = {
            "TORCHELASTIC_RUN_ID": self.run_id,
            "TORCHELASTIC_RESTART_COUNT": str(max_restarts - self.restarts_left),
            "TORCHELASTIC_MAX_RESTARTS": str(max_restarts),
            "TORCHELASTIC_USE_AGENT_STORE": "False",
        }
        self.attempt = Attempt(self.job, max_restarts - self.restarts_left, variables)
        return {**self.attempt.pids}

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        """Raises the ranks' failure if no restart is left, or if one would not help."""
        assert self.attempt is not None
        try:
            returned = self.attempt.wait(POLL_INTERVAL)
        except RankFailed as failure:
            if failure.final or self.restarts_left == 0:
                raise
            self.restarts_left -= 1
            max_restarts = self.job.work.world.max_restarts
            *_, last = failure.reason.strip().splitlines()
            reason = RankFailed(failure.rank, last)
            print(
                f"restart {max_restarts - self.restarts_left} of {max_restarts}: {reason}", file=sys.stderr, flush=True
            )
            return RunResult(WorkerState.FAILED)
        return RunResult(WorkerState.HEALTHY if returned is None else WorkerState.SUCCEEDED, returned or {})

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        self._shutdown()

    def _shutdown(self, death_sig: signal.Signals = signal.SIGKILL, timeout: int = 30) -> None:
        """By SIGKILL, whatever `death_sig` is: ranks ignore other signals."""
        if self.attempt is not None:
            self.attempt.end()


class SingleNodeRendezvous(RendezvousHandler):
    """The agents' rendezvous over all machines, of which there is one. The ranks have their own (rendezvous.py)."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id

    def get_backend(self) -> str:
        return "single_node"

    def next_rendezvous(self) -> RendezvousInfo:
        return RendezvousInfo(HashStore(), 0, 1, RendezvousStoreInfo("127.0.0.1", 0))

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """There is no other agent to join."""

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self.run_id

    def shutdown(self) -> bool:
        return True


LAUNCHERS: dict[str, Callable[[LaunchSpec], Any]] = {"elastic": run_elastic, "spawn": run_spawn}
