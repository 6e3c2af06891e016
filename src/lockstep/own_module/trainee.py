"""What a run trains."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from lockstep.own_module.logged import Logged
from lockstep.own_module.protocols import Metrics, Step
from lockstep.own_module.rank_data import RankData


@dataclass(frozen=True)
class Trainee:
    """A plain net with its task, or a user's LightningModule, and its data.

    `net` has the weights that are recorded and saved: that of a TaskModule, or the module itself.
    """

    module: Any
    net: nn.Module
    data: RankData
    log: Logged
    step: Step
    metrics: Metrics
