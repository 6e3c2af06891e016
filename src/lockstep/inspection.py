"""Inspect user code before any rank starts: whether it can be called, and facts that the plan needs.

It runs in a child of the fork server, so that the command imports neither torch nor user code; in this process if it
is a rank itself.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lockstep import schemas
from lockstep.config_error import require
from lockstep.launch import forkserver
from lockstep.launch.external_launcher import rank_from_env
from lockstep.launch.topology import is_rank_zero
from lockstep.progress import notice
from lockstep.schemas.data import BATCH_SIZE
from lockstep.schemas.engine import ENGINES
from lockstep.schemas.facts import CodeFacts
from lockstep.schemas.groups import SEVERAL, USER_CODE
from lockstep.schemas.target import KEY, PARTIAL
from lockstep.schemas.task import Samples
from lockstep.targets.edited import unload_edited_modules
from lockstep.targets.kinds import is_data_module, lightning_module, of_pytorch_lightning
from lockstep.targets.locate import check

OPTIONS = (
    *(*USER_CODE, "seed", "batch_size", "trainer"),
    *("max_epochs", "accumulate_grad_batches", "gradient_clip_val", "precision", "log_every_n_steps"),
)
"""Options of the plan that the inspection depends on. A module may read the last ones from `self.trainer`."""

FROM_DATA = ("shape", "outputs")
"""Arguments that a net gets from the data if it has parameters of these names."""

NOT_REPEATABLE = (
    "the same seed gives other samples when it is read again, so its runs cannot be repeated or resumed exactly: it "
    "uses the clock or a generator of its own (like webdataset's shuffle without rng=random)"
)


def inspected(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a plan, with facts about its user code.

    Raises:
        ConfigError: a target cannot be imported, takes other arguments, or returns an object of the wrong type.
    """
    targets = [option for group in USER_CODE for option in (values[group] if group in SEVERAL else [values[group]])]
    facts = CodeFacts()
    if any(isinstance(option, schemas.Target) for option in targets):
        facts = _inspect_in_child(values)
    values["strategy"].check_optimizer(facts.optimizer_classes)
    model, data, task, scheduler = (values[group] for group in ("model", "data", "task", "scheduler"))
    if facts.model is not None:
        model = schemas.UserLightningModule(model.name, model._target_, model.arguments, manual=facts.model.manual)
    if facts.task is not None:
        task = replace(task, **vars(facts.task))
    if facts.plateau:
        scheduler = replace(scheduler, plateau=True)
    if not facts.loader.repeatable and is_rank_zero(rank_from_env()):
        notice(f"data={data.name}: {NOT_REPEATABLE}")
    if facts.in_loaders and isinstance(data, schemas.UserData):
        _require_no_settings(data, facts)
        data = data.as_loaders
    if facts.data is not None:
        data = replace(data, **vars(facts.data))
    return {
        **values,
        **{"model": model, "data": data, "task": task, "scheduler": scheduler},
        "batch_size": values["batch_size"] or facts.loader.batch_size or BATCH_SIZE,
        "drop_last": values["drop_last"] or facts.loader.drop_last,
        "test": values["test"] and (facts.data is None or facts.data.test_size > 0),
    }


def _inspect_in_child(values: Mapping[str, Any]) -> CodeFacts:
    options = {name: values[name] for name in OPTIONS}
    if rank_from_env() is not None or values["strategy"].in_process:
        unload_edited_modules()
        return inspect(options)
    engine = values["engine"].name
    forkserver.start_forkserver(*(ENGINES[name] for name in ENGINES if engine in (name, "both")))
    from lockstep.launch.child import in_child  # with torch

    facts: CodeFacts = in_child(inspect, options)
    return facts


def _require_no_settings(data: schemas.UserData, facts: CodeFacts) -> None:
    """Raise a ConfigError for settings of the data that have no effect."""
    unused: list[tuple[str, object, str]] = []
    if facts.streams:
        unused.append(("split", data.split, "an IterableDataset cannot be split"))
    else:
        reason = "a LightningDataModule creates its loaders itself"
        unused += [("split", data.split, reason), ("loader", data.loader, reason)]
    if facts.model is not None:
        unused.append(("inputs", data.input_key, "a batch is passed to the module as it is"))
        unused.append(("classes", data.num_classes, "it is for plain nets"))
    for name, value, reason in unused:
        require(not value, f"data.{name}", value, reason, "nothing in its place")


def inspect(options: Mapping[str, Any]) -> CodeFacts:
    """Inspect the user code among the options of a plan.

    Raises:
        ConfigError: as `inspected`.
    """
    facts, model, data = CodeFacts(), options["model"], options["data"]
    may_be_module = isinstance(model, schemas.UserModel) and _may_be_module(model)
    _inspect_training(options, facts)
    if isinstance(data, schemas.UserData):
        from lockstep.data.user_data import create_data, describe, streams_of  # with torch

        created = create_data(data, options["seed"])
        facts.streams = streams_of(data, created) is not None
        facts.in_loaders = facts.streams or is_data_module(created)
        if not facts.in_loaders:
            samples: Samples = "module" if may_be_module else options["task"].samples
            facts.data = describe(data, options["seed"], samples, created)
    if may_be_module:
        from lockstep.session.module_facts import inspect_module  # with torch

        inspect_module(options, facts)
    if facts.in_loaders and facts.model is None:
        from lockstep.session.module_facts import inspect_loaders

        inspect_loaders(options, facts)
    return facts


def _may_be_module(model: schemas.UserModel) -> bool:
    """Whether the target is a LightningModule, or a function, which may return one."""
    target = check("model", model.call, dict.fromkeys(FROM_DATA))
    reason, hint = "it derives from pytorch_lightning, not from lightning", "import lightning.pytorch as pl in its file"
    require(not of_pytorch_lightning(target), f"model.{KEY}", model.call[KEY], reason, hint)
    lightning = lightning_module()
    return lightning is not None and (not isinstance(target, type) or issubclass(target, lightning))


def _inspect_training(options: Mapping[str, Any], facts: CodeFacts) -> None:
    """Inspect the optimizer, the scheduler, the task, the loggers and the callbacks."""
    optimizer, scheduler, task = options["optimizer"], options["scheduler"], options["task"]
    if isinstance(optimizer, schemas.UserOptimizer):
        target = check("optimizer", {**optimizer.call, PARTIAL: True}, reserved=["params"])
        facts.optimizer_classes = tuple(base.__name__ for base in getattr(target, "__mro__", ()))
    if isinstance(scheduler, schemas.UserScheduler):
        from lockstep.schedulers import is_plateau  # with torch

        facts.plateau = is_plateau(scheduler, optimizer)
    if isinstance(task, schemas.UserTask):
        check("task", task.call)
        from lockstep.targets.task import describe_task  # with torch

        facts.task = describe_task(task)
    for logger in options["logger"]:
        if isinstance(logger, schemas.UserLogger):
            from lockstep.loggers import lightning_adapter  # with Lightning

            lightning_adapter.check(logger)
    for callback in options["callbacks"]:
        target = check(callback.key, callback.call)
        if isinstance(target, type):
            from lockstep.session.callbacks import check_callback

            check_callback(callback, target, saves=not options["trainer"].barebones)
