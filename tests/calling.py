"""An engine that calls its peers a known number of times: one step of two buckets, a sum, a barrier."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lockstep.launch import Place
from lockstep.plan import Plan


def run(plan: Plan, place: Place) -> None:
    wide = torch.nn.Sequential(torch.nn.Linear(600, 600), torch.nn.Linear(600, 600))
    net = DistributedDataParallel(wide, init_sync=False, bucket_cap_mb=1)  # less than a layer
    net(torch.ones(1, 600)).sum().backward()
    dist.all_reduce(torch.ones(3))
    dist.barrier()
