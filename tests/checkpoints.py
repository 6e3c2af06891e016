"""Checkpoint files as tests read them."""

from pathlib import Path

from torch import Tensor

from lockstep.checkpoint.content import net_weights
from lockstep.checkpoint.files import read_checkpoint


def net_state(path: Path) -> dict[str, Tensor]:
    """Return the parameters and buffers in an undamaged checkpoint file, by the net's own names."""
    return net_weights(read_checkpoint(path))
