"""A likely reason of a difference: gradients that are zero but for rounding, and an optimizer that scales them up."""

from collections.abc import Mapping
from typing import Any

from lockstep.compare.recorded_run import leaves

SQUARED = ("exp_avg_sq", "square_avg")
"""In the state of Adam and its relatives, and of RMSprop: the mean squared gradient, by whose root they divide."""
NOISE = 1e-12  # the largest gradient that is rounding noise of float64, relative to the largest gradient of the net
AGREEMENT = 1e-10
"""How closely the squared gradients agree, relative to the largest, if nothing else than noise differs."""


def noise_reason(a: Mapping[str, Any], b: Mapping[str, Any]) -> str | None:
    """Return this reason if the last checkpoints of two runs show it.

    The loss does not depend on a parameter whose gradient is zero, such as the weights of a constant input in front of
    BatchNorm: however far these drift, all other gradients agree.
    """
    left, right = _squared_gradients(a), _squared_gradients(b)
    shapes, others = ({key: squares.shape for key, squares in run.items()} for run in (left, right))
    if not shapes or shapes != others:
        return None
    largest = max(squares.max().item() for squares in (*left.values(), *right.values()))
    counts = []
    for key, squares in left.items():
        if (squares - right[key]).abs().max() > AGREEMENT * largest:
            return None
        either = squares.maximum(right[key])
        counts.append(int(((either > 0) & (either < NOISE**2 * largest)).sum()))
    if not any(counts):
        return None
    return (
        f"The gradients of both agree. Those of {sum(counts)} elements in {sum(map(bool, counts))} of {len(counts)} "
        f"parameters are zero except for rounding noise (below {NOISE:g} of the largest), which the optimizer scales "
        "up. They are of a bias, or the weights of a constant input, in front of BatchNorm."
    )


def _squared_gradients(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mean squared gradients that the optimizers keep, by key."""
    return {
        key: value.double()
        for key, value in leaves(checkpoint)
        if key.startswith("optimizer_states.") and key.endswith(SQUARED) and hasattr(value, "numel") and value.numel()
    }
