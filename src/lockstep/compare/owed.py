"""How far apart two runs may be: the same arithmetic in the same order owes the same bits.

Between other worlds float64 owes 1e-10 at every step. In shorter numbers sums in another order differ by rounding, and
training may double such a difference at every step: there a measured bound is owed for the first steps alone.
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Owed:
    """The largest difference allowed, and up to which optimizer step."""

    within: float
    steps: float = math.inf

    def __str__(self) -> str:
        if self == OTHER_MASKS:
            return "the same samples alone (independent dropout masks; dropout=sliced makes them equal)"
        bound = f"within {self.within:g}" if self.within else "identical"
        return bound if math.isinf(self.steps) else f"{bound} in the first {self.steps} steps"


IDENTICAL = Owed(0.0)
FLOAT64 = Owed(1e-10)
FLOAT32 = Owed(1e-4, 3)
MIXED = Owed(0.1, 3)
"""By precision; the last two are ten times or more what was measured (README)."""
OTHER_MASKS = Owed(sys.float_info.max)


def owed_between(a: Mapping[str, Any], b: Mapping[str, Any]) -> Owed:
    """What two plans owe each other."""
    if _arithmetic(a) == _arithmetic(b):
        return IDENTICAL
    if "independent" in (a.get("dropout"), b.get("dropout")):
        return OTHER_MASKS
    precisions = {a["precision"], b["precision"]}
    if precisions == {"64-true"}:
        return FLOAT64
    return FLOAT32 if precisions <= {"64-true", "32-true"} else MIXED


def _arithmetic(heading: Mapping[str, Any]) -> tuple[object, ...]:
    """What decides the order of every sum. Two ranks have only one order."""
    strategy, world = heading["strategy"], heading["world_size"]
    by_hand = heading["gradient_sync"] if world > 2 else "any"
    wrap = {
        "single": ("whole", heading["micro_batches"]),
        "model_parallel": ("whole", heading["micro_batches"]),
        "dp": ("dp", heading["devices"]),
    }
    own = wrap.get(strategy, ("ddp", world))
    alike = ("precision", "accelerator", "threads", "sync_batchnorm", "dropout")
    return *own, by_hand, *(heading.get(key) for key in alike)
