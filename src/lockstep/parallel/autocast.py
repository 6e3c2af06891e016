"""Reapply autocast in threads: whether it is on, and its dtype, are settings of a thread."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class AutocastWrapper(nn.Module):
    """A net under autocast with one dtype, in whichever thread it is called.

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


def with_thread_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs in another thread as in this one: under its gradient mode and autocast on a CPU."""
    inference, gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    autocast, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def call(*arguments: Any) -> Any:
        with (
            torch.inference_mode(inference),
            torch.set_grad_enabled(gradients),
            torch.autocast("cpu", dtype, enabled=autocast, cache_enabled=False),
        ):
            return function(*arguments)

    return call
