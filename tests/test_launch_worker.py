"""No rank leaves a group before all are connected: it would break the group for one that still connects."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from lockstep.collectives.tour import RankOptions, debug_group, world_of
from lockstep.launch.start import start_ranks
from lockstep.launch.topology import RankContext
from lockstep.launch.worker import process_group
from lockstep.world import World

LATE = 0.5
"""Seconds that rank 0 takes longer to connect."""


@dataclass(frozen=True)
class Job:
    """`forms`: the function of torch that forms the group."""

    world: World
    forms: str


def run(job: Job, context: RankContext) -> list[float]:
    """On a rank, as an engine: when rank 0 was connected, and when each rank went on."""
    form, connected = getattr(dist, job.forms), [0.0]

    def form_slowly(*args: Any, **kwargs: Any) -> Any:
        group = form(*args, **kwargs)
        time.sleep(LATE)
        connected[0] = time.monotonic()
        return group

    world = replace(job.world, distributed=True)
    with pytest.MonkeyPatch.context() as patch:
        if context.rank == 0:
            patch.setattr(dist, job.forms, form_slowly)
        with process_group(world, context, Path(world.folder, "group")):
            if job.forms == "new_group":
                debug_group(10.0)
            times = [time.monotonic()] * context.world_size
            dist.all_gather_object(times, times[0])
    return [*connected, *times]


@pytest.mark.parametrize("forms", ["init_process_group", "new_group"])
def test_no_rank_goes_on_before_all_are_connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forms: str) -> None:
    monkeypatch.chdir(tmp_path)
    world = replace(world_of(RankOptions()), distributed=False, folder=str(tmp_path))
    connected, *went_on = start_ranks(Job(world, forms), __name__)
    assert len(went_on) == 2
    assert min(went_on) >= connected > 0
