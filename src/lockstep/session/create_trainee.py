"""Create what a plan trains and its data."""

from lockstep import data, schemas
from lockstep.checkpoint.content import Progress
from lockstep.data.loader import to_device_if_fits
from lockstep.data.tensors import TensorData
from lockstep.launch.topology import RankContext
from lockstep.loaders.loader_source import LoaderSource
from lockstep.loaders.rank_data import RankData
from lockstep.loaders.split_loaders import SplitSource
from lockstep.parallel import convert_batchnorm, convert_dropout, show_shapes
from lockstep.plan import Plan
from lockstep.seeding import build_model
from lockstep.session.trainee import Trainee
from lockstep.steps.exact_log import ExactLog
from lockstep.steps.task_metrics import TaskMetrics
from lockstep.steps.task_module import TaskModule
from lockstep.steps.task_step import TaskStep


def create_trainee(plan: Plan, context: RankContext, begin: Progress, lightning: bool) -> Trainee:
    """Return what a plan trains. Its weights are drawn before anything else, so they are the same on every rank.

    Args:
        begin: where training begins.
        lightning: whether a plain net is to become a LightningModule, for a Trainer or for callbacks.
    """
    if plan.model.lightning:
        from lockstep.session.user_module import create_user_module  # with Lightning

        return create_user_module(plan, context, begin)
    return create_task(plan, context, begin, lightning)


def create_task(plan: Plan, context: RankContext, begin: Progress, lightning: bool) -> Trainee:
    """Return a plain net with its task."""
    device, *_ = plan.strategy.devices(plan)
    in_loaders = isinstance(plan.data, schemas.Loaders)
    splits = None if in_loaders else data.load_splits(plan.data, plan.seed, plan.task.samples)
    if isinstance(plan.task, schemas.OwnTask):
        from lockstep.targets.task import make_task  # for the user's code alone

        make_task(plan.task)
    net = convert_batchnorm(plan, build_model(plan, plan.data if splits is None else splits))
    masks = convert_dropout(plan, context.rank, net)
    show_shapes(plan, net)
    module = _task_class(lightning)(net, plan)
    if isinstance(splits, TensorData):
        splits = to_device_if_fits(splits, device)
    source = (
        LoaderSource(plan.data, module, plan.seed, plan.batch_size)
        if splits is None
        else SplitSource(plan, splits, module, device)
    )
    source.seed_setup()
    log = ExactLog(module, context.rank, device, active=bool(plan.callbacks))
    step = TaskStep(plan, module, masks)
    metrics = TaskMetrics(plan, context, step, splits)
    rank_data = RankData(plan, context, source, module, begin, virtual_ranks=1)
    return Trainee(module, net, rank_data, log, step, metrics)


def _task_class(lightning: bool) -> type[TaskModule]:
    if not lightning:
        return TaskModule
    from lockstep.steps.lightning_task import LightningTask  # with Lightning

    return LightningTask
