"""The tolerance within which two runs are expected to agree: the same arithmetic in the same order gives the same bits.

Otherwise float64 agrees to 1e-10 at every step, and in shorter formats, whose rounding training may double at every
step, a measured bound holds for the first steps only.
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lockstep.strategies import STRATEGIES

RunMetadata = Mapping[str, Any]


@dataclass(frozen=True)
class Tolerance:
    """The largest difference allowed, up to which optimizer step, and why."""

    within: float
    steps: float = math.inf
    reason: str = field(default="", compare=False)

    @property
    def is_bound(self) -> bool:
        """Whether losses and weights are compared; otherwise their size does not count."""
        return self.within < sys.float_info.max

    def __str__(self) -> str:
        if not self.is_bound:
            return "the same samples alone"
        bound = f"within {self.within:g}" if self.within else "identical"
        return bound if math.isinf(self.steps) else f"{bound} in the first {self.steps} steps"


ROUNDED = "sums in another order, or in another precision, round differently; training amplifies it"
IDENTICAL = Tolerance(0.0, reason="the same arithmetic in the same order")
FLOAT64 = Tolerance(1e-10, reason="sums in another order, in float64")
FLOAT32 = Tolerance(1e-4, 3, ROUNDED)
TF32 = Tolerance(0.01, 3, "a GPU adds in any order and convolves in TF32; trainer.deterministic=warn repeats a run")
MIXED = Tolerance(0.1, 3, ROUNDED)  # the last two are ten times or more what was measured (docs/agreement.md)
MASKS = Tolerance(sys.float_info.max, reason="independent dropout masks; strategy=virtual draws those of ddp")
STATISTICS = Tolerance(sys.float_info.max, reason="each part of a batch is normalized by itself")


LIKELY = (
    "Their ranks have other shares of a batch: a loss across samples, statistics of a batch, noise, or a logged value "
    "that is no mean over samples or is rounded to float32 depends on them{}."
)
HINT = " (compare with strategy=virtual)"
EFFECTS = {"loss", "gradient norm", "logged", "validation", "train", "test", "results"}  # may differ for this reason


def tolerance_between(a: RunMetadata, b: RunMetadata) -> Tolerance:
    """Return the expected agreement of two runs, whichever engine runs them."""
    dropout = {run["dropout_rng"] for run in (a, b) if "dropout_rng" in run}
    repeatable = all(run["accelerator"] != "gpu" or run.get("deterministic") for run in (a, b))
    if repeatable and _arithmetic(a) == _arithmetic(b) and len(dropout) < 2:
        return IDENTICAL
    is_split_alike = _batch_layout(a) == _batch_layout(b)
    if "per_rank" in dropout and (len(dropout) > 1 or not is_split_alike):
        return MASKS
    if not is_split_alike and any(run.get("per_rank_buffers") and run["world_size"] == 1 for run in (a, b)):
        return STATISTICS  # of contiguous parts
    precisions = {a["precision"], b["precision"]}
    if precisions == {"64-true"}:
        return FLOAT64
    if not precisions <= {"64-true", "32-true"}:
        return MIXED
    return TF32 if "gpu" in (a["accelerator"], b["accelerator"]) else FLOAT32


def likely_reason(a: RunMetadata, b: RunMetadata, differs: str) -> str | None:
    """Return why two runs that split a batch differently probably differ first in a quantity."""
    if _batch_layout(a) == _batch_layout(b) or differs not in EFFECTS:
        return None
    return LIKELY.format("" if "other" in (a.get("engine"), b.get("engine")) else HINT)


def _arithmetic(run: RunMetadata) -> tuple[object, ...]:
    """Return what decides the order of every sum. Two ranks have only one order."""
    gradient_sync = run["gradient_sync"] if run["world_size"] > 2 else "any"
    order = STRATEGIES[run["strategy"]].order
    order = order and f"{order} {run['world_size']} {run.get('mesh_shape', '')}"
    options = (run[key] for key in ("precision", "threads", "sync_batchnorm"))
    statistics = run.get("engine") == "raw" and run["sync_batchnorm"]  # which it adds by torch's own collectives
    kernels = run.get("memory_format", "auto"), run.get("compile", False)
    return *_batch_layout(run), order, gradient_sync, statistics, *kernels, *options


def _batch_layout(run: RunMetadata) -> tuple[object, ...]:
    """Return what decides how a batch is split, and so which dropout masks each rank draws."""
    return *STRATEGIES[run["strategy"]].batch_layout(run), run["accelerator"]
