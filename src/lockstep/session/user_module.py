"""A user's LightningModule with its first weights and its data.

Some methods of this one object are wrapped, so that they draw random numbers under the run's seed.
"""

from collections.abc import Callable
from typing import Any

import torch

from lockstep.checkpoint.content import Progress
from lockstep.launch.topology import RankContext
from lockstep.loaders.loader_source import create_source
from lockstep.loaders.rank_data import RankData
from lockstep.plan import Plan
from lockstep.precision import convert, default_dtype
from lockstep.random_state import seeded
from lockstep.session.module_facts import create_module
from lockstep.steps.exact_log import ExactLog
from lockstep.steps.module_step import ModuleStep
from lockstep.targets.kinds import overrides, replace_method


def create_user_module(plan: Plan, context: RankContext, begin: Progress) -> tuple[Any, RankData, ExactLog, ModuleStep]:
    """Create the module of a plan, its data and the objects around its steps."""
    module = create_module(plan.model, plan.seed)  # type: ignore[arg-type]

    def convert_module() -> None:
        if plan.sync_batchnorm:
            from lockstep.parallel.sync_batchnorm import convert_batchnorm

            convert_batchnorm(module)
        convert(plan, module)

    def configure_model(original: Callable[[], None]) -> None:
        with default_dtype(torch.float32):  # weights are drawn in float32, whatever the plan's dtype
            seeded(plan.seed, original)
        convert_module()

    convert_module()
    source = create_source(plan.data, module, plan.seed, plan.batch_size)
    source.seed_setup()
    if overrides(module, "configure_model"):
        replace_method(module, "configure_model", configure_model)
    data = RankData(plan, context, source, module, begin, plan.strategy.layout(plan.devices).virtual_ranks)
    log = ExactLog(module, context.rank)
    return module, data, log, ModuleStep(plan, module, log, data)
