"""The data of a plan in memory, as tests compute with it by hand."""

from typing import Any

from torch import Tensor

from lockstep.loaders.loader_source import create_data
from lockstep.plan import Plan


def splits_of(plan: Plan) -> dict[str, tuple[Tensor, Tensor]]:
    """Return inputs and targets by train, val and test, as they lie in memory."""
    data: Any = create_data(plan.data, plan.seed)
    data.prepare_data()
    data.setup("fit")
    splits: dict[str, tuple[Tensor, Tensor]] = data.splits
    return splits
