"""Inspect user code before any rank starts: whether it can be called, and facts that the plan needs.

It runs in a child of the fork server, so that the command imports neither torch nor user code.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from typing import Any

from lockstep import schemas
from lockstep.config_error import require
from lockstep.files import short_path
from lockstep.launch import forkserver
from lockstep.launch.external_launcher import is_rank_zero, rank_from_env
from lockstep.run_summary import run_title
from lockstep.schemas.data import BATCH_SIZE
from lockstep.schemas.engine import ENGINES
from lockstep.schemas.groups import SEVERAL, USER_CODE
from lockstep.schemas.target import ARGS, KEY
from lockstep.targets.kinds import derives_from, is_data_module
from lockstep.targets.locate import check, require_package

OPTIONS = (
    *(*USER_CODE, "seed", "batch_size", "drop_last", "trainer"),
    *("max_epochs", "accumulate_grad_batches", "gradient_clip_val", "precision", "log_every_n_steps"),
)
"""Options of the plan that the inspection depends on. A module may read the last ones from `self.trainer`."""

FROM_DATA = ("shape", "outputs")  # arguments that a net gets from the data if it has parameters of these names


def inspected(values: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a plan, with facts about its user code; raise a ConfigError if it cannot be used."""
    if targets := user_code(values):
        for target in targets:
            require_package(f"{target.key}.{KEY}", target._target_)
            if isinstance(target, schemas.UserLogger):
                target.require_package()
            if isinstance(target, schemas.UserData):
                target.require_files()
        announce(values)
        options, engine = {name: values[name] for name in OPTIONS}, values["engine"].name
        if rank_from_env() is not None or values["strategy"].in_process:
            values |= inspect(options)
        else:
            forkserver.start_forkserver(*(ENGINES[name] for name in ENGINES if engine in (name, "both")))
            from lockstep.launch.child import in_child  # with torch

            values |= in_child(inspect, options)
    data, optimizer = values["data"], values["optimizer"]
    if isinstance(optimizer, schemas.UserOptimizer):
        values["strategy"].check_optimizer(optimizer.classes)
    has_test_data = not isinstance(data, schemas.DataFacts) or data.test_size > 0
    return {**values, "batch_size": values["batch_size"] or BATCH_SIZE, "test": has_test_data and values["test"]}


def user_code(values: Mapping[str, Any]) -> list[schemas.Target]:
    chosen = [option for group in USER_CODE for option in (values[group] if group in SEVERAL else [values[group]])]
    return [option for option in chosen if isinstance(option, schemas.Target)]


def announce(values: Mapping[str, Any]) -> None:
    """Print what is to run, and in which folder; a resumed run says it with its checkpoint."""
    if is_rank_zero():
        print(run_title(values) + ("" if values["resume"] else f": {short_path(values['run_dir'])}"), flush=True)


def inspect(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a plan, with facts about its user code."""
    data, module = options["data"], None
    may_be_module = isinstance(options["model"], schemas.UserModel) and _may_be_module(options["model"])
    _inspect_training(options)
    if isinstance(data, schemas.UserData):
        options["data"] = _inspect_data(data, options["seed"], "module" if may_be_module else options["task"].samples)
    if may_be_module:
        from lockstep.session.lightning_module import inspect_module  # with torch

        options["model"], module = inspect_module(options)
    if isinstance(options["data"], schemas.Loaders):
        from lockstep.session.lightning_module import inspect_loaders

        inspect_loaders(options, module)
    return options


def _inspect_data(data: schemas.UserData, seed: int, samples: Any) -> schemas.UserData:
    """Return the data with facts about it; of loaders, which depend on the model, only that it is such."""
    from lockstep.data.user_data import create_data, describe, streams_of  # with torch

    created = create_data(data, seed)
    is_stream = streams_of(data, created) is not None
    if not is_stream and not is_data_module(created):
        return replace(data, **vars(describe(data, created, samples)))
    reason = "a LightningDataModule or IterableDataset decides it"
    require(not data.split, "data.split", data.split, reason, "nothing in its place")
    require(is_stream or not data.loader, "data.loader", data.loader, reason, "nothing in its place")
    return schemas.UserLoaders(**vars(data))


def _may_be_module(model: schemas.UserModel) -> bool:
    """Whether the target is a LightningModule, or a function, which may return one if it takes nothing of the data."""
    target = check("model", model.call, dict.fromkeys(FROM_DATA))
    if isinstance(target, type):
        return derives_from(target, "lightning.pytorch")
    return "lightning.pytorch" in sys.modules and signature(target).parameters.keys().isdisjoint(FROM_DATA)


def _inspect_training(options: dict[str, Any]) -> None:
    """Inspect the optimizer, the scheduler, the task, the loggers and the callbacks."""
    optimizer, scheduler, task = options["optimizer"], options["scheduler"], options["task"]
    if isinstance(optimizer, schemas.UserOptimizer):
        target = check("optimizer", {**optimizer.call, ARGS: [None]})
        classes = tuple(base.__name__ for base in getattr(target, "__mro__", ()))
        options["optimizer"] = replace(optimizer, classes=classes)
    if isinstance(scheduler, schemas.UserScheduler):
        from lockstep.schedulers import is_plateau  # with torch

        options["scheduler"] = replace(scheduler, plateau=is_plateau(scheduler, optimizer))
    if isinstance(task, schemas.UserTask):
        check("task", task.call)
        from lockstep.targets.task import describe_task  # with torch

        options["task"] = describe_task(task)
    for logger in options["logger"]:
        if isinstance(logger, schemas.UserLogger):
            from lockstep.loggers import lightning_adapter  # with Lightning

            lightning_adapter.check(logger)
    for callback in options["callbacks"]:
        target = check(callback.key, callback.call)
        if isinstance(target, type):
            from lockstep.session.callbacks import check_callback

            check_callback(callback, target, saves=not options["trainer"].barebones)
