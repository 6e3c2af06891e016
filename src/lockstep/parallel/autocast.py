"""Apply autocast in threads: whether it is on, and its dtype, are settings of a thread."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class AutocastWrapper(nn.Module):
    """A net under autocast with one dtype (None: without autocast): DataParallel tells its threads no dtype."""

    def __init__(self, net: nn.Module, device_type: str, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.net, self.device_type, self.dtype = net, device_type, dtype

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.autocast(self.device_type, self.dtype, enabled=self.dtype is not None, cache_enabled=False):
            return self.net(inputs)  # type: ignore[no-any-return]


def with_thread_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with this thread's gradient mode and CPU autocast, to be called in another thread."""
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
