"""A user's LightningModule with its first weights and its data.

Its object is the user's: of this one instance some methods are wrapped, so that what they draw is drawn under the run's
seed. All else an engine calls as it stands.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from lockstep.checkpoint.content import Progress
from lockstep.launch.topology import RankContext
from lockstep.loaders.loader_source import create_source
from lockstep.loaders.rank_data import RankData
from lockstep.plan import Plan
from lockstep.precision import convert, default_dtype
from lockstep.random_state import seeded
from lockstep.session.create_model import create_module, data_arguments
from lockstep.session.schedules import require_monitors
from lockstep.session.trainee import Trainee
from lockstep.steps.exact_log import ExactLog
from lockstep.steps.module_metrics import ModuleMetrics
from lockstep.steps.module_step import ModuleStep
from lockstep.targets.kinds import overrides, replace_method
from lockstep.targets.locate import locate


def create_user_module(plan: Plan, context: RankContext, begin: Progress) -> Trainee:
    """Return the module of a plan, its data, and what a session does around its steps."""
    device, *_ = plan.strategy.devices(plan)
    call = locate("model._target_", plan.model.call["_target_"])
    facts = data_arguments(call, plan.data, _known(plan), plan.seed)
    module = create_module(plan.model, facts, plan.seed)  # type: ignore[arg-type]
    _convert(plan, module)
    source = create_source(plan.data, module, plan.seed, plan.batch_size)
    source.seed_setup()
    log = ExactLog(module, context.rank, device, active=True)
    _draw_from_the_seed(plan, module)
    rank_data = RankData(plan, context, source, module, begin, plan.strategy.layout(plan.devices).virtual_ranks)
    step = ModuleStep(plan, module, log, rank_data.transfer)
    return Trainee(module, module, rank_data, log, step, ModuleMetrics(plan, step, rank_data))


def _known(plan: Plan) -> dict[str, Any]:
    """Return what the plan knows of the data, for a module with parameters of these names."""
    outputs = getattr(plan.data, "outputs", 0)
    return {"shape": plan.data.shape, "outputs": outputs} if outputs else {}  # type: ignore[union-attr]


def _convert(plan: Plan, module: nn.Module) -> None:
    if plan.sync_batchnorm:
        from lockstep.parallel.sync_batchnorm import convert_batchnorm

        convert_batchnorm(module)
    convert(plan, module)


def _draw_from_the_seed(plan: Plan, module: Any) -> None:
    """Have `configure_model` draw under the run's seed, the same on every rank."""

    def configure_model(original: Callable[[], None]) -> None:
        with default_dtype(torch.float32):  # first weights are drawn in it, whatever the plan's numbers
            seeded(plan.seed, original)
        _convert(plan, module)

    def configure_optimizers(original: Callable[[], Any]) -> Any:
        optimizers = original()
        require_monitors(plan.model.name, optimizers)
        return optimizers

    if overrides(module, "configure_model"):
        replace_method(module, "configure_model", configure_model)
    if module.automatic_optimization:
        replace_method(module, "configure_optimizers", configure_optimizers)
