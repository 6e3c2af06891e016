"""An engine for tests: each rank speaks, joins a collective, or has children where FAULT says.

FAULT is `kind@rank`; the environment of the test reaches the ranks as the environment of a command does.
"""

import os
import subprocess

import torch
import torch.distributed as dist

from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.runs.run_files import Metrics


def run(plan: Plan, context: RankContext) -> Metrics:
    total = torch.tensor([context.rank + 1])
    if dist.is_initialized():
        dist.all_reduce(total)
    kind, _, rank = os.environ.get("FAULT", "none@0").partition("@")
    if context.rank == int(rank) and kind == "children":
        subprocess.run(["sh", "-c", "sleep 3600; true"])
    print(f"rank {context.rank} speaks")
    if dist.is_initialized():
        dist.all_reduce(total)
    return {"total": int(total)}
