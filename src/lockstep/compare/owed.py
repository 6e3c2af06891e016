"""How far apart two runs may be: the same arithmetic in the same order owes the same bits.

Other worlds owe 1e-10 in float64 and, in shorter numbers, a bound that was measured.
"""

from collections.abc import Mapping
from typing import Any

FLOAT64, FLOAT32, MIXED = 1e-10, 1e-3, 1e-1
"""Owed between different worlds, by precision; the last two as measured (README)."""


def owed_between(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    """The largest difference that two plans allow each other; 0 where every sum is taken in the same order."""
    if _arithmetic(a) == _arithmetic(b):
        return 0.0
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
    return *own, by_hand, heading["precision"], heading["accelerator"], heading["threads"], heading["sync_batchnorm"]
