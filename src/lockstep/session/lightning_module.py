"""The module of a run on a rank: its first weights, in the dtype of the plan, and what computes its steps."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from lockstep import schemas
from lockstep.loaders.loader_source import LoaderSource, create_source
from lockstep.memory import memory_format_of
from lockstep.parallel.net_proxy import net_of
from lockstep.plan import Plan
from lockstep.precision import convert, default_dtype
from lockstep.random_state import seed_all, seeded
from lockstep.session.shapes import show_shapes
from lockstep.steps.module_step import ModuleStep
from lockstep.targets.kinds import overrides, replace_method
from lockstep.targets.locate import create


def create_module(choice: schemas.Module, seed: int) -> Any:
    """Create the module, its weights drawn before anything else: the same on every rank."""
    seed_all(seed)
    return create("model", choice.call)


def prepare_module(plan: Plan) -> tuple[Any, LoaderSource, Callable[..., ModuleStep]]:
    """Return a module with weights under the run's seed, the source of its loaders, and what creates its step."""
    module = create_module(plan.model, plan.seed)

    def convert_module() -> None:
        if plan.sync_batchnorm:
            from lockstep.parallel.sync_batchnorm import convert_batchnorm

            convert_batchnorm(module)
        convert(plan, module)
        if (net := net_of(module)) is not None:
            net.to(memory_format=memory_format_of(plan, net))

    def configure_model(original: Callable[[], None]) -> None:
        with default_dtype(torch.float32):  # weights are drawn in float32, whatever the plan's dtype
            seeded(plan.seed, original)
        convert_module()

    convert_module()
    if overrides(module, "configure_model"):
        replace_method(module, "configure_model", configure_model)
    kind = ModuleStep
    if plan.strategy.virtual_ranks(plan) > 1:
        from lockstep.steps.virtual_steps import VirtualSteps

        kind = VirtualSteps
    if plan.show_shapes and (net := net_of(module)) is not None:
        show_shapes(net, plan.devices if plan.strategy.replicates else 1)
    return module, create_source(plan.data, module, plan.seed, plan.batch_size), partial(kind, plan, module)
