"""The metadata of a run, and whether its results depend on the number of ranks, judged by the layers of its net."""

from torch import nn

from lockstep.plan import Plan
from lockstep.private_api.torch import BATCHNORM, DROPOUT


def run_metadata(plan: Plan, net: nn.Module) -> dict[str, str | int | float]:
    """Return what identifies a run beside its results; `dropout_rng` is "none" if no layer drops anything."""
    summary = plan.summary()
    if plan.model.lightning:  # it configures its own optimizer and schedules
        summary = {name: value for name, value in summary.items() if name not in ("optimizer", "lr", "scheduler")}
    return summary if has_dropout(net) else {**summary, "dropout_rng": "none"}


def depends_on_world(plan: Plan, net: nn.Module) -> bool:
    """Whether results depend on the number of ranks by more than rounding."""
    rank_masks = plan.dropout_rng == "per_rank" and has_dropout(net)
    return rank_masks or (not plan.sync_batchnorm and bool(_batch_norms(net)))


def has_rank_buffers(plan: Plan, net: nn.Module) -> bool:
    """Whether ranks compute running statistics of their own slices of a batch, so that buffers may differ."""
    tracks = any(module.track_running_stats for module in _batch_norms(net))
    return tracks and plan.world_size > 1 and not plan.sync_batchnorm


def has_dropout(net: nn.Module) -> bool:
    layers = [module for module in net.modules() if isinstance(module, nn.RNNBase | nn.MultiheadAttention)]
    rates = [module.p for module in net.modules() if isinstance(module, DROPOUT)]
    return any(rate > 0 for rate in (*rates, *(layer.dropout for layer in layers)))


def _batch_norms(net: nn.Module) -> list[nn.BatchNorm1d]:
    return [module for module in net.modules() if isinstance(module, BATCHNORM)]
