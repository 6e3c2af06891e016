"""A plain net with its task and its data. Only what the plan needs is imported."""

from lockstep import data, schemas
from lockstep.checkpoint.content import Progress
from lockstep.data.tensors import for_net
from lockstep.launch.topology import RankContext
from lockstep.loaders.loader_source import create_source, dataset_source
from lockstep.loaders.rank_data import RankData
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.schemas.target import BuiltIn
from lockstep.session.create_model import create_net
from lockstep.steps.exact_log import ExactLog
from lockstep.steps.task_module import TaskModule
from lockstep.steps.task_step import TaskStep


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
    net = create_net(plan, splits if isinstance(plan.data, BuiltIn) else plan.data)
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
        device, *_ = plan.strategy.devices(plan)
        datasets = for_net(splits.datasets, device, dtype_of(plan), plan.task.samples == "inputs")
        source = dataset_source(plan.data, module, plan.seed, plan.batch_size, datasets, splits.loader)
    source.seed_setup()
    log = ExactLog(module, context.rank, active=bool(plan.callbacks))
    rank_data = RankData(plan, context, source, module, begin)
    return module, rank_data, log, TaskStep(plan, module, masks, splits)
