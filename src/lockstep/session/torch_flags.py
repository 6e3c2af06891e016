"""Flags of torch, set while a run trains and tests, and reset afterwards."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from lockstep.schemas import Trainer

CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
"""cuBLAS is deterministic only with it."""


@contextmanager
def torch_flags(trainer: Trainer) -> Iterator[None]:
    """Set `deterministic`, `benchmark` and `detect_anomaly`; None leaves a flag as it is."""
    algorithms = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark, workspace = torch.backends.cudnn.benchmark, os.environ.get(CUBLAS)
    if trainer.deterministic is not None:
        torch.use_deterministic_algorithms(bool(trainer.deterministic), warn_only=trainer.deterministic == "warn")
    if trainer.deterministic:
        os.environ.setdefault(CUBLAS, ":4096:8")
        torch.backends.cudnn.benchmark = False
    if trainer.benchmark is not None:
        torch.backends.cudnn.benchmark = trainer.benchmark
    try:
        with torch.autograd.set_detect_anomaly(trainer.detect_anomaly):
            yield
    finally:
        torch.use_deterministic_algorithms(algorithms[0], warn_only=algorithms[1])
        torch.backends.cudnn.benchmark = benchmark
        if workspace is None:
            os.environ.pop(CUBLAS, None)
