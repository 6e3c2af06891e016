"""How far two records are apart at each optimizer step, as curves."""

from collections.abc import Mapping

from lockstep.compare.folder import RunFolder
from lockstep.compare.verdict import difference

LARGEST = "largest"
QUANTITIES = {"loss": "loss_sum", "gradient norm": "grad_norm"}
"""By name the field of a step; a loss is a mean over its samples."""


def differences(left: RunFolder, right: RunFolder) -> Mapping[int, Mapping[str, float]]:
    """By step, of those that both have, the difference of each quantity, as `compare` counts it, and the largest.

    At step 0, before training, both have the same weights.
    """
    found = {0: dict.fromkeys((LARGEST, *QUANTITIES), 0.0)}
    for at in sorted(left.steps.keys() & right.steps.keys()):
        a, b = left.steps[at], right.steps[at]
        own = {name: difference(_value(a, field), _value(b, field)) for name, field in QUANTITIES.items()}
        found[at[1]] = {LARGEST: max(own.values()), **own}
    return found


def _value(line: Mapping[str, float], field: str) -> float | None:
    value = line.get(field)
    return value / line["samples"] if field == "loss_sum" and value is not None and line.get("samples") else value
