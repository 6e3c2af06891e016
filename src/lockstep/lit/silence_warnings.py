"""Lightning's warnings and logs that are not for a user of this project."""

import logging
import os
import warnings

from lightning.pytorch.callbacks import ModelSummary

NOT_FOR_US = (
    "It is recommended to use `self.log.*sync_dist=True",  # what is logged has been summed over the ranks already
    "The number of training batches .* is smaller than the logging interval",
    "You're resuming from a checkpoint that ended before the epoch ended",  # our loaders go on within it
    "Be aware that when using `ckpt_path`, callbacks",  # a test writes no checkpoint, so it has no use for theirs
    "You defined a `validation_step` but have no `val_dataloader`",  # a TaskModule always has one
    "Total length of `list` across ranks is zero",  # no validation split
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # between Lightning and torch
)


def silence_warnings() -> None:
    """Silence warnings of Lightning that do not concern a user of this project."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    logging.getLogger(ModelSummary.__module__).setLevel(logging.INFO)  # who asks for its callback wants to read it
    for message in NOT_FOR_US:
        warnings.filterwarnings("ignore", message)
    # Lightning sets it on import, which is now where torchrun started this process. Every step of Adam would load the
    # driver anew to ask whether there is a GPU.
    os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)
