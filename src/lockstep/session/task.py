"""A plain net with its task and its data. Only what the plan needs is imported."""

from typing import Any

from torch import nn

from lockstep import data, schemas
from lockstep.checkpoint.content import Progress
from lockstep.data.tensors import TensorData
from lockstep.launch.topology import RankContext
from lockstep.loaders.loader_source import create_net_source, create_source
from lockstep.loaders.rank_data import RankData
from lockstep.memory.format import memory_format_of
from lockstep.plan import Plan
from lockstep.precision import convert
from lockstep.random_state import seed_all
from lockstep.steps.exact_log import ExactLog
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
    net = create_float32_net(plan, shapes)
    convert(plan, net)
    return net.to(memory_format=memory_format_of(plan, net))


def create_float32_net(plan: Plan, shapes: Any) -> nn.Module:
    """Create a plain net in float32 and in torch's memory format."""
    seed_all(plan.seed)
    outputs = plan.task.outputs(shapes.shape, shapes.outputs)
    return create_user_net(
        plan.model.call, shapes.shape, outputs, plan.task.output_shape(plan, outputs), trains=plan.train
    )


def create_task(
    plan: Plan, context: RankContext, begin: Progress, lightning: bool
) -> tuple[TaskModule, RankData, ExactLog, TaskStep]:
    """Create a plain net with its task, its data and the objects around its steps.

    Args:
        lightning: whether it becomes a LightningModule.
    """
    in_loaders = isinstance(plan.data, schemas.Loaders)
    splits = None if in_loaders else data.load_splits(plan.data, plan.seed, plan.task.samples)
    if isinstance(plan.task, schemas.UserTask):
        from lockstep.targets.task import create_task as create_user_task

        create_user_task(plan.task)
    net = create_net(plan, splits if isinstance(splits, TensorData) else plan.data)
    if plan.sync_batchnorm:
        from lockstep.parallel.sync_batchnorm import convert_batchnorm

        convert_batchnorm(net)
    masks = None
    if plan.dropout_rng == "global":
        from lockstep.parallel.global_dropout import convert_dropout

        masks = convert_dropout(plan, context.rank, net)
    if plan.show_shapes:
        from lockstep.parallel.shapes import show_shapes

        show_shapes(net, plan.strategy.layout(plan.devices).replicas)
    if lightning:
        from lockstep.steps.lightning_task import LightningTask

        module: TaskModule = LightningTask(net, plan)
    else:
        module = TaskModule(net, plan)
    if splits is None:
        source = create_source(plan.data, module, plan.seed, plan.batch_size)
    else:
        source = create_net_source(plan, splits, module)
    source.seed_setup()
    log = ExactLog(module, context.rank, active=bool(plan.callbacks))
    rank_data = RankData(plan, context, source, module, begin, virtual_ranks=1)
    return module, rank_data, log, TaskStep(plan, module, masks, splits)
