"""The objects that a session is composed of."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from lockstep.loaders.rank_data import RankData
from lockstep.steps.exact_log import ExactLog

if TYPE_CHECKING:
    from lockstep.steps.module_metrics import ModuleMetrics
    from lockstep.steps.module_step import ModuleStep
    from lockstep.steps.task_metrics import TaskMetrics
    from lockstep.steps.task_step import TaskStep


@dataclass(frozen=True)
class Trainee:
    """A plain net with its task, or a user's LightningModule, and its data.

    `net` has the weights that are recorded and saved: that of a TaskModule, or the module itself. `step` weights the
    loss of a rank; `metrics` is recorded, logged and shown.
    """

    module: Any
    net: nn.Module
    data: RankData
    log: ExactLog
    step: "TaskStep | ModuleStep"
    metrics: "TaskMetrics | ModuleMetrics"
