"""What a run returns when it is over."""

from collections.abc import Mapping

from torch import nn

from lockstep import schemas
from lockstep.data.line import fitted_line
from lockstep.digest import digest
from lockstep.plan import Plan
from lockstep.run_files import Metrics
from lockstep.world_dependence import heading


def results_of(
    plan: Plan, net: nn.Module, *, epochs: int, steps: int, seconds: float, trained: int, measured: Mapping[str, float]
) -> Metrics:
    """What a run returns, and metrics.json holds.

    Args:
        epochs: done so far, in earlier runs too where this one was resumed, as `steps`.
        seconds: of training, validation left out.
        trained: samples that this run trained on.
    """
    return {
        **heading(plan, net),
        "epochs": epochs,
        "steps": steps,
        "train_seconds": seconds,
        "samples_per_second": trained / seconds if trained else 0.0,
        **measured,
        **(fitted_line(net, plan.data.predict) if isinstance(plan.data, schemas.Line) else {}),
        "digest": digest(net.state_dict()),
    }
