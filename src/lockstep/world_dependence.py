"""What in a built net makes results depend on the world: dropout of each rank's own, BatchNorm of its own share.

Found by the types of its modules, so that every net counts, however it is configured.
"""

from torch import nn

from lockstep.plan import Plan
from lockstep.private_api.torch import BATCHNORM, DROPOUT


def world_dependent(plan: Plan, net: nn.Module) -> bool:
    """Whether what a run computes depends on its number of ranks, beyond the order of sums."""
    own_masks = plan.dropout_rng == "per_rank" and drops(net)
    return own_masks or (not plan.sync_batchnorm and bool(_batch_norms(net)))


def per_rank_buffers(plan: Plan, net: nn.Module) -> bool:
    """Whether ranks take statistics of their own share of a batch, so that their buffers may differ."""
    follows = any(module.track_running_stats for module in _batch_norms(net))
    return follows and plan.world_size > 1 and not plan.sync_batchnorm


def run_metadata(plan: Plan, net: nn.Module) -> dict[str, str | int | float]:
    """What tells runs apart beside their results; `dropout_rng` is none where the net drops nothing."""
    summary = plan.summary()
    if plan.model.lightning:  # it has an optimizer and schedules of its own
        summary = {name: own for name, own in summary.items() if name not in ("optimizer", "lr", "scheduler")}
    return summary if drops(net) else {**summary, "dropout_rng": "none"}


def drops(net: nn.Module) -> bool:
    """Whether any of its modules drops anything while it trains."""
    return any(_rate(module) > 0 for module in net.modules())


def _rate(module: nn.Module) -> float:
    if isinstance(module, DROPOUT):
        return module.p
    return module.dropout if isinstance(module, nn.RNNBase | nn.MultiheadAttention) else 0.0


def _batch_norms(net: nn.Module) -> list[nn.BatchNorm1d]:
    return [module for module in net.modules() if isinstance(module, BATCHNORM)]
