"""The module of a run on a rank: its first weights in the dtype of the plan, its step, optimizers and schedules."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from lightning.pytorch.utilities.types import LRSchedulerConfig
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from lockstep import schemas
from lockstep.loaders.loader_source import LoaderSource, create_source
from lockstep.memory import memory_format_of
from lockstep.plan import Plan
from lockstep.precision import convert, default_dtype
from lockstep.random_state import seed_all, seeded
from lockstep.steps.module_step import ModuleStep
from lockstep.strategies.strategy import net_of
from lockstep.structures import tensors_in
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


def show_shapes(net: nn.Module, replicas: int) -> None:
    """Have each of the net's replicas, in a process or a thread, print the shapes of its first training batch."""
    remaining = replicas

    def show(module: nn.Module, inputs: Any, outputs: Any) -> None:
        nonlocal remaining
        if remaining > 0 and module.training:
            remaining -= 1
            shapes = " ".join(str(tuple(tensor.shape)) for tensor in tensors_in(outputs))
            print(f"a replica sees {tuple(inputs[0].shape)} and returns {shapes}", flush=True)

    net.register_forward_hook(show)


def configured(returned: Any) -> tuple[list[Optimizer], list[LRSchedulerConfig]]:
    """Return optimizers and schedules from what `configure_optimizers` returns, in any form that Lightning takes."""
    if returned is None:
        return [], []
    if isinstance(returned, list | tuple) and len(returned) == 2 and isinstance(returned[0], list):
        schedules = returned[1] if isinstance(returned[1], list) else [returned[1]]
        return [*returned[0]], [_config(schedule, None) for schedule in schedules]
    entries = [*returned] if isinstance(returned, list | tuple) else [returned]
    entries = [{"optimizer": entry} if isinstance(entry, Optimizer) else entry for entry in entries]
    if not all(isinstance(entry, Mapping) for entry in entries):
        kind = type(returned).__name__
        raise ValueError(f"configure_optimizers returns a {kind}, and not optimizers with their schedules")
    with_schedule = [entry for entry in entries if "lr_scheduler" in entry]
    schedules = [_config(entry["lr_scheduler"], entry.get("monitor")) for entry in with_schedule]
    return [entry["optimizer"] for entry in entries], schedules


def _config(schedule: Any, monitor: str | None) -> LRSchedulerConfig:
    entry = schedule if isinstance(schedule, Mapping) else {"scheduler": schedule, "monitor": monitor}
    options = {key: value for key, value in entry.items() if key in LRSchedulerConfig.__dataclass_fields__}
    return LRSchedulerConfig(**{"reduce_on_plateau": isinstance(options["scheduler"], ReduceLROnPlateau), **options})
