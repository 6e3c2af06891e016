"""Private names of torchmetrics, which Lightning imports, too.

If one is missing, a metric that is logged on steps shows nothing there, a resume within an epoch counts anew, each
state is reduced by messages of its own, and precision=64-true ends with an AttributeError.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.utilities.data import dim_zero_sum

UPDATES = "lockstep_updates"
COUNTS = ("tp", "fp", "tn", "fn")


def is_metric(value: Any) -> bool:
    return isinstance(value, Metric)


def is_collection(value: Any) -> bool:
    return isinstance(value, MetricCollection)


def last_forward(metric: Any) -> Tensor | None:
    """Return the value of the last batch that the metric was called with."""
    value = getattr(metric, "_forward_cache", None)
    return value if isinstance(value, Tensor) else None


def metric_state(metric: Any) -> dict[str, Any]:
    """Return the metric's sums, and the number of updates."""
    return {**metric.metric_state, UPDATES: metric.update_count}


def restore_metric(metric: Any, state: Mapping[str, Any]) -> None:
    """Restore what `metric_state` returned; add it to what was measured since, as ranks' metrics are reduced.

    `merge_state` does that too, but rejects metrics whose `forward` needs the complete state.
    """
    sums = {name: value for name, value in state.items() if name != UPDATES}
    if metric.update_count and state[UPDATES]:
        getattr(metric, "_reduce_states", metric.merge_state)(sums)
    else:
        for name, value in sums.items():
            setattr(metric, name, value)
    metric._update_count = metric.update_count + state[UPDATES]
    metric._computed = None


def added_states(metric: Any) -> list[Tensor]:
    """Return the states of a metric that is not computed yet, if all are tensors that ranks add up; else nothing."""
    reductions: Mapping[str, Any] = getattr(metric, "_reductions", {})
    states = [getattr(metric, name) for name in reductions]
    is_default = metric.dist_sync_fn is None and metric.process_group is None
    is_synced = metric.sync_on_compute and metric.compute_with_cache and getattr(metric, "_computed", True) is None
    adds = all(reduction is dim_zero_sum for reduction in reductions.values())
    return states if is_default and is_synced and adds and all(isinstance(state, Tensor) for state in states) else []


def compute_from(metric: Any, states: Sequence[Sequence[Tensor]]) -> None:
    """Compute a metric from each state of all ranks, in the order of `added_states`; it keeps the value."""
    gathered = iter(states)
    metric.dist_sync_fn = lambda *_, **__: next(gathered)
    try:
        metric.compute()
    finally:
        metric.dist_sync_fn = None


def widen_counts(metric: Any) -> None:
    """Convert the counts of a classification metric to float64, which has them exactly; it divides in float32 else."""
    for name in COUNTS:
        state = getattr(metric, name, None)
        if isinstance(state, Tensor) and not state.is_floating_point():
            setattr(metric, name, state.double())


def widen_metric(metric: Any) -> None:
    """Convert the floating states of a metric to float64; `Metric.set_dtype` would convert class labels too."""
    metric._apply(lambda state: state.double() if state.is_floating_point() else state)
