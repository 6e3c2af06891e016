"""Reapply the autocast dtype in DataParallel's threads."""

import torch
from torch import Tensor, nn


class AutocastWrapper(nn.Module):
    """The net under autocast with this dtype, in whichever thread it is called.

    torch.nn.DataParallel tells its threads whether autocast is on, but not the dtype: without this, bfloat16
    would be float16 on all devices.
    """

    def __init__(self, net: nn.Module, device_type: str, dtype: torch.dtype | None) -> None:
        """`dtype` None: no autocast."""
        super().__init__()
        self.net, self.device_type, self.dtype = net, device_type, dtype

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.autocast(self.device_type, self.dtype, enabled=self.dtype is not None, cache_enabled=False):
            outputs: Tensor = self.net(inputs)
            return outputs
