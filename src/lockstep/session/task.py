"""A plain net with its task and its data. What the plan does not ask for is not imported."""

from lockstep import data, schemas
from lockstep.checkpoint.content import Progress
from lockstep.data.samples import SampleData
from lockstep.data.tensors import TensorData
from lockstep.launch.topology import RankContext
from lockstep.loaders.loader_source import LoaderSource, create_net_source, create_source
from lockstep.loaders.rank_data import RankData
from lockstep.plan import Plan
from lockstep.session.create_model import create_net
from lockstep.session.trainee import Trainee
from lockstep.steps.exact_log import ExactLog
from lockstep.steps.task_metrics import TaskMetrics
from lockstep.steps.task_module import TaskModule
from lockstep.steps.task_step import TaskStep


def create_task(plan: Plan, context: RankContext, begin: Progress, lightning: bool) -> Trainee:
    """Return a plain net with its task; `lightning`: as a LightningModule."""
    device, *_ = plan.strategy.devices(plan)
    in_loaders = isinstance(plan.data, schemas.Loaders)
    splits = None if in_loaders else data.load_splits(plan.data, plan.seed, plan.task.samples)
    if isinstance(plan.task, schemas.OwnTask):
        from lockstep.targets.task import make_task

        make_task(plan.task)
    net = create_net(plan, plan.data if splits is None else splits)
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
    module = _task_class(lightning)(net, plan)
    source = _source(plan, splits, module)
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


def _source(plan: Plan, splits: TensorData | SampleData | None, module: TaskModule) -> LoaderSource:
    """Return where batches come from: `splits`, or the user's loaders."""
    if splits is None:
        return create_source(plan.data, module, plan.seed, plan.batch_size)
    return create_net_source(plan, splits, module)
