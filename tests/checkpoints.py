"""Checkpoint files as tests read them."""

from pathlib import Path

from torch import Tensor

from lockstep.runs.checkpoint.files import read_checkpoint


def net_state(path: Path) -> dict[str, Tensor]:
    """Return the parameters and buffers in an undamaged checkpoint file, by their names in the module."""
    return dict(read_checkpoint(path)["state_dict"])
