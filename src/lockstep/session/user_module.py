"""A user's LightningModule with its first weights, and the source of its loaders."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from lockstep.loaders.loader_source import LoaderSource, create_source
from lockstep.plan import Plan
from lockstep.precision import convert, default_dtype
from lockstep.random_state import seeded
from lockstep.session.module_facts import create_module
from lockstep.steps.module_step import ModuleStep
from lockstep.targets.kinds import overrides, replace_method


def create_user_module(plan: Plan) -> tuple[Any, LoaderSource, Callable[..., ModuleStep]]:
    """Return a module with weights under the run's seed, the source of its loaders, and what creates its step."""
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
    if overrides(module, "configure_model"):
        replace_method(module, "configure_model", configure_model)
    kind = ModuleStep
    if plan.strategy.layout(plan.devices).virtual_ranks > 1:
        from lockstep.steps.virtual_steps import VirtualSteps

        kind = VirtualSteps
    return module, create_source(plan.data, module, plan.seed, plan.batch_size), partial(kind, plan, module)
