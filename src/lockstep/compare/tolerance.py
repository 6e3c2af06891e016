"""How closely two runs are expected to agree: the same arithmetic in the same order gives the same bits.

Otherwise float64 agrees to 1e-10 at every step. In shorter formats sums in another order differ by rounding, and
training may double a difference at every step: there a measured bound holds for the first steps only.
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lockstep.strategies.registry import STRATEGIES


@dataclass(frozen=True)
class Tolerance:
    """The largest difference allowed, and up to which optimizer step."""

    within: float
    steps: float = math.inf

    def __str__(self) -> str:
        if self == INCOMPARABLE:
            return "the same samples alone (independent dropout masks; dropout_rng=global makes them equal)"
        bound = f"within {self.within:g}" if self.within else "identical"
        return bound if math.isinf(self.steps) else f"{bound} in the first {self.steps} steps"


IDENTICAL = Tolerance(0.0)
FLOAT64 = Tolerance(1e-10)
FLOAT32 = Tolerance(1e-4, 3)
MIXED = Tolerance(0.1, 3)
"""By precision; the last two are ten times or more what was measured (docs/agreement.md)."""
INCOMPARABLE = Tolerance(sys.float_info.max)


def tolerance_between(a: Mapping[str, Any], b: Mapping[str, Any]) -> Tolerance:
    """The expected agreement of two runs, by their headings."""
    if _arithmetic(a) == _arithmetic(b):
        return IDENTICAL
    if "per_rank" in (_dropout(a), _dropout(b)) and _masks(a) != _masks(b):
        return INCOMPARABLE
    precisions = {a["precision"], b["precision"]}
    if precisions == {"64-true"}:
        return FLOAT64
    return FLOAT32 if precisions <= {"64-true", "32-true"} else MIXED


def likely_reason(a: Mapping[str, Any], b: Mapping[str, Any], differs: str) -> str | None:
    """Why two runs of one LightningModule probably differ beyond the tolerance, where they share out a batch otherwise;
    None where nothing speaks for it.

    Args:
        differs: the quantity that differs first.
    """
    if "optimizer" in {**a, **b} or _masks(a) == _masks(b):  # a plain net, whose loss is its task's
        return None
    if differs in ("loss", "gradient norm"):
        return (
            "Their ranks have other shares of a batch: a loss across samples, statistics of a batch or noise depend on "
            "them (compare with strategy=virtual)."
        )
    if differs in ("logged", "validation", "train", "test", "results"):
        return (
            "The losses agree and the ranks have other shares of a batch: what the module logs is no mean over samples "
            "(a metric of each batch, an unweighted mean), or is rounded to float32."
        )
    return None


def _arithmetic(run: Mapping[str, Any]) -> tuple[object, ...]:
    """What decides the order of every sum. Two ranks have only one order."""
    by_hand = run["gradient_sync"] if run["world_size"] > 2 else "any"
    alike = ("precision", "threads", "sync_batchnorm")
    sums = STRATEGIES[run["strategy"]].reduction_order(run)
    return *_masks(run), *sums, by_hand, run.get("memory_format", "auto"), *(run[key] for key in alike)


def _masks(run: Mapping[str, Any]) -> tuple[object, ...]:
    """What decides how a batch is split, and so which dropout masks are drawn where each rank draws its own."""
    return *STRATEGIES[run["strategy"]].batch_layout(run), run["accelerator"], _dropout(run)


def _dropout(run: Mapping[str, Any]) -> str:
    return str(run.get("dropout_rng", "none"))
