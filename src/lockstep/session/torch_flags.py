"""Flags of torch, set while a run trains and tests, and reset afterwards."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from lockstep.plan import Plan
from lockstep.session.compiled import compile_errors


@contextmanager
def torch_flags(plan: Plan) -> Iterator[None]:
    """Set `deterministic`, `benchmark` and `detect_anomaly`; None leaves a flag as it is."""
    trainer = plan.trainer
    before = torch.get_deterministic_debug_mode(), torch.backends.cudnn.benchmark
    deterministic = trainer.deterministic
    if deterministic is None and plan.compile and plan.accelerator == "cpu":
        deterministic = "warn"  # else threads of a compiled graph add the gradients of an embedding in any order
    if deterministic is not None:
        torch.use_deterministic_algorithms(bool(deterministic), warn_only=deterministic == "warn")
    if trainer.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or cuBLAS is not deterministic
        torch.backends.cudnn.benchmark = False
    if trainer.benchmark is not None:
        torch.backends.cudnn.benchmark = trainer.benchmark
    try:
        with torch.autograd.set_detect_anomaly(trainer.detect_anomaly), compile_errors(plan):
            yield
    finally:
        torch.set_deterministic_debug_mode(before[0])
        torch.backends.cudnn.benchmark = before[1]
