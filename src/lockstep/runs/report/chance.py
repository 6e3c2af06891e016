"""Whether one result is better than another by more than chance: by seeds, or by the samples of a split."""

from collections.abc import Sequence
from math import sqrt
from statistics import mean, variance
from typing import Any

from lockstep.plan.schemas.groups import better

QUANTILES = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""Of Student's distribution, 97.5 %, from one degree of freedom on."""
NORMAL = 1.96


def chance(metric: str, a: Sequence[float], b: Sequence[float], samples: int | None) -> tuple[float | None, str]:
    """Return the difference up to which chance explains it (95 %), and by what it is known; None if nothing is.

    a, b: the values of each, one for each seed. Of one seed only the error of a share of right samples is known.
    """
    if min(len(a), len(b)) > 1:
        errors = [variance(values) / len(values) for values in (a, b)]
        parts = sum(error**2 / (len(values) - 1) for error, values in zip(errors, (a, b), strict=True))
        freedom = int(sum(errors) ** 2 / parts) if parts else 1  # Welch's
        quantile = QUANTILES[freedom - 1] if 0 < freedom <= len(QUANTILES) else NORMAL
        return quantile * sqrt(sum(errors)), f"{len(a)} and {len(b)} seeds"
    if metric.rpartition("/")[2].lower() in ("acc", "accuracy") and samples:
        shares = [min(1.0, max(0.0, mean(values))) for values in (a, b)]
        return NORMAL * sqrt(sum(share * (1 - share) for share in shares) / samples), f"{samples} samples"
    return None, "one run each; -m seed=1,2,3 tells"


def judgement(metric: str, a: Sequence[float], b: Sequence[float], samples: int | None) -> dict[str, Any]:
    """Return the difference of b from a, which of them is better ("a", "b", ""), and whether it is chance, in words."""
    distance = mean(b) - mean(a)
    limit, reason = chance(metric, a, b, samples)
    size = "" if limit is None else "more than chance" if abs(distance) > limit else "may be chance"
    verdict = f"{size}: ±{limit:.2g} by {reason}" if size else f"unknown: {reason}"
    is_better = (distance > 0) == (better(metric) == "max")
    winner = "b" if is_better else "a"
    return {"difference": distance, "better": winner if distance else "", "chance": verdict if distance else "equal"}
