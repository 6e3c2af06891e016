"""Checkpoint files as tests read them."""

from pathlib import Path

from torch import Tensor

from lockstep.checkpoint.content import net_weights
from lockstep.safe_loading import load


def net_state(path: Path) -> dict[str, Tensor]:
    """Return the parameters and buffers in a checkpoint file, by the net's own names."""
    return net_weights(load(path))
