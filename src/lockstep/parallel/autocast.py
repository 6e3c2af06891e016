"""Mixed precision where torch forgets which."""

import torch
from torch import Tensor, nn

from lockstep.plan import Plan
from lockstep.precision import MIXED


class AutocastWrapper(nn.Module):
    """The net under autocast in the plan's short numbers, in whichever thread it is called.

    torch.nn.DataParallel tells its threads whether autocast is on, but not in which numbers: without this, bfloat16
    would be float16 on all devices.
    """

    def __init__(self, net: nn.Module, plan: Plan) -> None:
        super().__init__()
        self.net, self.dtype = net, MIXED.get(plan.precision)
        self.device_type = "cuda" if plan.accelerator == "gpu" else "cpu"

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.autocast(self.device_type, self.dtype, enabled=self.dtype is not None, cache_enabled=False):
            outputs: Tensor = self.net(inputs)
            return outputs
