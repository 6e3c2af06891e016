"""Private names of torchmetrics, which is never imported here: a user's module brings it.

Where one is gone, a metric that is logged on steps shows nothing there, and a resume within an epoch counts anew.
"""

import sys
from collections.abc import Mapping
from typing import Any

from torch import Tensor


def is_metric(value: Any) -> bool:
    found = sys.modules.get("torchmetrics")
    return found is not None and isinstance(value, found.Metric)


def is_collection(value: Any) -> bool:
    found = sys.modules.get("torchmetrics")
    return found is not None and isinstance(value, found.MetricCollection)


def last_forward(metric: Any) -> Tensor | None:
    """The value of the last batch that it was called with."""
    value = getattr(metric, "_forward_cache", None)
    return value if isinstance(value, Tensor) else None


def metric_state(metric: Any) -> dict[str, Any]:
    """Its sums, and how often it was updated."""
    return {**metric.metric_state, UPDATES: metric.update_count}


def restore_metric(metric: Any, state: Mapping[str, Any]) -> None:
    """What `metric_state` gave; on top of what it has measured already, as ranks' metrics are reduced.

    `merge_state` is that too, but refuses metrics whose `forward` needs all that was measured before.
    """
    sums = {name: own for name, own in state.items() if name != UPDATES}
    if metric.update_count and state[UPDATES]:
        getattr(metric, "_reduce_states", metric.merge_state)(sums)
    else:
        for name, own in sums.items():
            setattr(metric, name, own)
    metric._update_count = metric.update_count + state[UPDATES]
    metric._computed = None


UPDATES = "lockstep_updates"
