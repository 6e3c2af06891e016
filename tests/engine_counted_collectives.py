"""An engine that calls its peers a known number of times: three steps, a sum, a barrier.

Torch keeps all gradients in one bucket in the first step, then in buckets of the size that was asked for.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lockstep.launch.topology import RankContext
from lockstep.plan import Plan


def run(plan: Plan, context: RankContext) -> None:
    wide = torch.nn.Sequential(torch.nn.Linear(600, 600), torch.nn.Linear(600, 600))
    net = DistributedDataParallel(wide, init_sync=False, bucket_cap_mb=1)  # less than a layer
    for _ in range(3):
        net(torch.ones(1, 600)).sum().backward()
    dist.all_reduce(torch.ones(3))
    dist.barrier()
