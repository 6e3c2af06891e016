"""Wait for a device."""

import torch


def synchronize(device: torch.device) -> None:
    """A GPU's work is only queued when a call returns: wait for it before looking at the clock."""
    if device.type == "cuda":
        torch.cuda.synchronize()
