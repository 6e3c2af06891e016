"""Private names of torchmetrics, which Lightning imports, too.

If one is missing, a metric that is logged on steps shows nothing there, a resume within an epoch counts anew, and
several ranks or precision=64-true end with an AttributeError.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

UPDATES = "lockstep_updates"
COUNTS = ("tp", "fp", "tn", "fn")


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


def states_of(metric: Any) -> dict[str, Any]:
    """Return the states of a metric on the CPU, to be gathered; nothing of one that is synced in a way of its own."""
    is_synced = metric.dist_sync_fn is metric.process_group is None and metric.sync_on_compute
    if not is_synced or type(metric)._sync_dist is not Metric._sync_dist:
        return {}
    states = ((name, getattr(metric, name)) for name in metric._reductions)
    return {name: [*map(Tensor.cpu, state)] if isinstance(state, list) else state.cpu() for name, state in states}


def compute_from(metric: Any, ranks: Sequence[Mapping[str, Any]]) -> None:
    """Compute a metric from its states on all ranks; it keeps the value, and its own states.

    torchmetrics would send two or three messages for each state, and wait for ever if a rank has fewer batches.
    """

    def reduce_states(*_: Any, **__: Any) -> None:
        for name, reduction in metric._reductions.items():
            states = [rank[name] if isinstance(rank[name], list) else [rank[name]] for rank in ranks]
            joined: Any = [each.to(metric.device) for state in states for each in state]
            if not isinstance(metric._defaults[name], list):
                shape = max((each.shape for each in joined), key=len)  # R2Score's have no outputs before an update
                joined = torch.stack([each.expand(shape) for each in joined])
            setattr(metric, name, reduction(joined) if callable(reduction) and len(joined) else joined)

    if any(ranks):
        object.__setattr__(metric, "_sync_dist", reduce_states)
    metric.compute()
    vars(metric).pop("_sync_dist", None)


def widen_counts(metric: Any) -> None:
    """Convert the counts of a classification metric to float64, which has them exactly; it divides in float32 else."""
    for name in COUNTS:
        state = getattr(metric, name, None)
        if isinstance(state, Tensor) and not state.is_floating_point():
            setattr(metric, name, state.double())


def widen_metric(metric: Any) -> None:
    """Convert the floating states of a metric to float64; `Metric.set_dtype` would convert class labels too."""
    metric._apply(lambda state: state.double() if state.is_floating_point() else state)
