"""A plain net with its task and its data. Only what the plan needs is imported."""

from collections.abc import Callable
from math import prod
from typing import Any

from torch import Tensor, nn

from lockstep import data, schemas
from lockstep.config_error import ConfigError, require
from lockstep.data.tensors import prepare_for_net
from lockstep.loaders.loader_source import LoaderSource, create_source, dataset_source
from lockstep.memory.format import memory_format_of
from lockstep.plan import Plan
from lockstep.precision import convert, dtype_of
from lockstep.random_state import seed_all
from lockstep.schemas.target import KEY, BuiltIn
from lockstep.session.shapes import show_shapes
from lockstep.steps.task_module import TaskModule
from lockstep.steps.task_step import TaskStep
from lockstep.targets.kinds import is_lightning_module
from lockstep.targets.locate import create


def create_net(plan: Plan, shapes: Any) -> nn.Module:
    """Create a plain net in the plan's dtype; its weights are drawn in float32. `shapes`: has `shape` and `outputs`."""
    seed_all(plan.seed)
    call, key = plan.model.call, f"model.{KEY}"
    outputs = plan.task.outputs(shapes.shape, shapes.outputs)
    net: nn.Module = create("model", call, {"shape": shapes.shape, "outputs": outputs})
    is_net = isinstance(net, nn.Module) and not is_lightning_module(net)
    reason = f"this returns a {type(net).__name__}, and not a plain nn.Module"
    require(is_net, key, call[KEY], reason, "the path of a net")
    trains = any(parameter.requires_grad for parameter in net.parameters()) or not plan.train
    require(trains, key, call[KEY], "no parameter requires gradients", "a net with some, or train=false")
    convert(plan, net)
    return net.to(memory_format=memory_format_of(plan, net))


def _outputs_check(plan: Plan, shapes: Any) -> Callable[[object], None]:
    """Return a check of the first outputs: a loss would broadcast another shape, or fail far from the cause.

    Of classes the net may have more.
    """
    parts = plan.data.parts if plan.objective.classes else None
    outputs, path = plan.task.outputs(shapes.shape, shapes.outputs), plan.model.call[KEY]

    def check(returned: object) -> None:
        shape = tuple(returned.shape) if isinstance(returned, Tensor) else ()
        if parts is None:
            fits = len(shape) > 1 and prod(shape[1:]) == outputs
            expected = f"(batch, …) with {outputs} numbers a sample"
        else:
            fits = shape[1:2] >= (outputs,) and shape[2:] == parts
            expected = f"(batch, {', '.join([f'{outputs} or more', *map(str, parts)])})"
        if not fits:
            described = f"outputs of shape {shape}" if shape else f"a {type(returned).__name__}"
            raise ConfigError(f"model.{KEY}={path}: this returns {described}, but the task expects {expected}.")

    return check


def create_task(plan: Plan, rank: int, lightning: bool) -> tuple[TaskModule, LoaderSource, Callable[..., TaskStep]]:
    """Create a plain net with its task and the source of its loaders; return also what creates the steps around it."""
    in_loaders = isinstance(plan.data, schemas.Loaders)
    splits = None if in_loaders else data.load(plan.data, plan.seed, plan.task.samples)
    if isinstance(plan.task, schemas.UserTask):
        from lockstep.targets.task import create_task as create_user_task

        create_user_task(plan.task)
    shapes: Any = splits if isinstance(plan.data, BuiltIn) else plan.data
    net = create_net(plan, shapes)
    if plan.sync_batchnorm:
        from lockstep.parallel.sync_batchnorm import convert_batchnorm

        convert_batchnorm(net)
    masks = None
    if plan.dropout_rng == "global":
        from lockstep.parallel.global_dropout import convert_dropout

        masks = convert_dropout(plan, rank, net)
    if plan.show_shapes:
        show_shapes(net, plan.strategy.layout(plan.devices).replicas)
    kind = TaskModule
    if lightning:
        from lockstep.steps.lightning_task import LightningTask

        kind = LightningTask
    module = kind(net, plan)
    if plan.task.samples not in ("sequences", "any"):
        module.check_outputs = _outputs_check(plan, shapes)
    if splits is None:
        source = create_source(plan.data, module, plan.seed, plan.batch_size)
    else:
        device, *_ = plan.strategy.devices(plan)
        datasets = prepare_for_net(splits.datasets, device, dtype_of(plan), plan.task.samples == "inputs")
        source = dataset_source(plan.data, module, plan.seed, plan.batch_size, datasets, splits.loader)
    return module, source, lambda _log, _data, loggers: TaskStep(plan, module, masks, splits, loggers)
