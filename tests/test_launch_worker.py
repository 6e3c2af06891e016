"""No rank leaves a group before all are connected: it would break the group for one that still connects."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from lockstep.collectives.tour import Options, world_of
from lockstep.launch.start import start_ranks
from lockstep.launch.topology import RankContext
from lockstep.launch.worker import process_group
from lockstep.plan.world import World

LATE = 0.5
"""Seconds that rank 0 takes longer to connect."""


@dataclass(frozen=True)
class Job:
    world: World


def connect(job: Job, context: RankContext) -> list[float]:
    """On a rank: when rank 0 was connected, and when each rank went on."""
    form, connected = dist.init_process_group, [0.0]

    def form_slowly(*args: Any, **kwargs: Any) -> Any:
        group = form(*args, **kwargs)
        time.sleep(LATE)
        connected[0] = time.monotonic()
        return group

    world = replace(job.world, distributed=True)
    with pytest.MonkeyPatch.context() as patch:
        if context.rank == 0:
            patch.setattr(dist, "init_process_group", form_slowly)
        with process_group(world, context, Path(world.folder, "group")):
            times = [time.monotonic()] * context.world_size
            dist.all_gather_object(times, times[0])
    return [*connected, *times]


def test_no_rank_goes_on_before_all_are_connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RANK_TASK", f"{__name__}:connect")
    world = replace(world_of(Options(devices=2)), distributed=False, folder=str(tmp_path))
    connected, *went_on = start_ranks(Job(world), "tests.rank_helpers")
    assert len(went_on) == 2
    assert min(went_on) >= connected > 0
