"""A plain net with its task and its data. Only what the plan needs is imported."""

from collections.abc import Callable
from typing import Any

from torch import nn

from lockstep import data, schemas
from lockstep.data.tensors import for_net
from lockstep.loaders.loader_source import LoaderSource, create_source, dataset_source
from lockstep.memory.format import memory_format_of
from lockstep.plan import Plan
from lockstep.precision import convert, dtype_of
from lockstep.random_state import seed_all
from lockstep.schemas.target import BuiltIn
from lockstep.steps.task_module import TaskModule
from lockstep.steps.task_step import TaskStep
from lockstep.targets.net import create_user_net


def create_net(plan: Plan, shapes: Any) -> nn.Module:
    """Create a plain net in the plan's dtype; its weights are drawn in float32 before.

    Args:
        shapes: has the `shape` of a sample, and the number of `outputs` that its targets need.

    Raises:
        ConfigError: the net cannot have the plan's memory format.
    """
    seed_all(plan.seed)
    outputs = plan.task.outputs(shapes.shape, shapes.outputs)
    net = create_user_net(plan, shapes.shape, outputs)
    convert(plan, net)
    return net.to(memory_format=memory_format_of(plan, net))


def create_task(plan: Plan, rank: int, lightning: bool) -> tuple[TaskModule, LoaderSource, Callable[..., TaskStep]]:
    """Create a plain net with its task and the source of its loaders; return also what creates the steps around it.

    Args:
        lightning: whether it becomes a LightningModule.
    """
    in_loaders = isinstance(plan.data, schemas.Loaders)
    splits = None if in_loaders else data.load_splits(plan.data, plan.seed, plan.task.samples)
    if isinstance(plan.task, schemas.UserTask):
        from lockstep.targets.task import create_task as create_user_task

        create_user_task(plan.task)
    net = create_net(plan, splits if isinstance(plan.data, BuiltIn) else plan.data)
    if plan.sync_batchnorm:
        from lockstep.parallel.sync_batchnorm import convert_batchnorm

        convert_batchnorm(net)
    masks = None
    if plan.dropout_rng == "global":
        from lockstep.parallel.global_dropout import convert_dropout

        masks = convert_dropout(plan, rank, net)
    if plan.show_shapes:
        from lockstep.parallel.shapes import show_shapes

        show_shapes(net, plan.strategy.layout(plan.devices).replicas)
    kind = TaskModule
    if lightning:
        from lockstep.steps.lightning_task import LightningTask

        kind = LightningTask
    module = kind(net, plan)
    if splits is None:
        source = create_source(plan.data, module, plan.seed, plan.batch_size)
    else:
        device, *_ = plan.strategy.devices(plan)
        datasets = for_net(splits.datasets, device, dtype_of(plan), plan.task.samples == "inputs")
        source = dataset_source(plan.data, module, plan.seed, plan.batch_size, datasets, splits.loader)
    return module, source, lambda *_: TaskStep(plan, module, masks, splits)
