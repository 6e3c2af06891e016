"""Before any rank starts: what code of the user's own comes to, that a configuration names.

It is asked in a child of the fork server, so that the command imports no torch and nothing of theirs is kept; in this
process where it is itself the rank.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lockstep import schemas, targets
from lockstep.config_error import config_error
from lockstep.launch import forkserver
from lockstep.launch.external_launcher import rank_from_env
from lockstep.launch.topology import is_rank_zero
from lockstep.progress import notice
from lockstep.schemas import groups
from lockstep.schemas.engine import ENGINES
from lockstep.schemas.own_data import BATCH_SIZE
from lockstep.schemas.target import KEY, PARTIAL
from lockstep.schemas.task import Samples

KNOWN = ("max_epochs", "accumulate_grad_batches", "gradient_clip_val", "precision", "log_every_n_steps")
"""What `self.trainer` has by these names before any rank starts."""

FROM_DATA = ("shape", "outputs")
"""What a net gets from the data, if it has parameters of these names."""


def inspected(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a plan, with what its data says of itself.

    Raises:
        ConfigError: a target cannot be imported, takes other arguments, or makes something else than it should.
    """
    own = {group: values[group] for group in groups.OWN_CODE if isinstance(values[group], schemas.Target)}
    own |= {one.key: one for group in groups.SEVERAL for one in values[group] if isinstance(one, schemas.OneOfSeveral)}
    if not own:
        return {**values, "batch_size": _batch_size(values, 0)}
    samples = values["task"].samples
    known = {name: values[name] for name in KNOWN} | {"max_steps": values["trainer"].max_steps}
    asked = own | {"data": values["data"]}, values["optimizer"], values["seed"], samples, values["batch_size"], known
    if rank_from_env() is not None or values["strategy"].in_process:
        with targets.edited_modules_anew():
            found = inspect(*asked)
    else:
        engine = values["engine"].name
        forkserver.start_forkserver(*(ENGINES[name] for name in ENGINES if engine in (name, "both")))
        from lockstep.launch.child import in_child  # with torch

        found = in_child(inspect, *asked)
    return _with(values, found)


UNREPEATABLE = (
    "read twice under one seed it gives other samples, so no run on it is repeated or resumed exactly: it draws by the "
    "clock or from a generator of its own (webdataset's shuffle does, without rng=random)"
)


def _with(values: dict[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The values, with what was found of the model, the task and the data."""
    values["strategy"].check_optimizer(found["optimizer"])
    model, choice, data = values["model"], values["data"], {**found["data"]}
    if found["module"] is not None:
        model = schemas.OwnModule(model.name, model._target_, model.arguments, **found["module"])
    for group in ("task", "scheduler"):
        if found[group]:
            values = {**values, group: replace(values[group], **found[group])}
    size, dropping = data.pop("size", 0), data.pop("drop_last", False)
    if not data.pop("repeatable", True) and is_rank_zero(rank_from_env()):
        notice(f"data={choice.name}: {UNREPEATABLE}")
    if found["loaders"] and isinstance(choice, schemas.OwnData):
        _require_none_of_ours(choice, found["streams"], found["module"] is None)
        choice = choice.as_loaders
    if data:
        choice = replace(choice, **{name: tuple(own) if isinstance(own, list) else own for name, own in data.items()})
    tests = values["test"] and (not data or data["test_size"] > 0)
    return {
        **values,
        **{"model": model, "data": choice, "test": tests, "drop_last": values["drop_last"] or dropping},
        "batch_size": _batch_size(values, size),
    }


def _batch_size(values: Mapping[str, Any], theirs: int) -> int:
    """As the plan says, else as their loader, else the usual."""
    given: int | None = values["batch_size"]
    return given if given is not None else theirs or BATCH_SIZE


def _require_none_of_ours(choice: schemas.OwnData, streams: bool, plain: bool) -> None:
    """Refuse keys that do nothing. Of IterableDatasets loaders are made here; classes count for a plain net."""
    if choice.split:
        why = "an IterableDataset cannot be divided" if streams else "a LightningDataModule says it itself"
        instead = "data.train=…, data.val=… and data.test=… of targets" if streams else "nothing in its place"
        raise config_error("data._split_", choice.split, why, instead)
    if choice.loader and not streams:
        raise config_error("data._loader_", choice.loader, "a LightningDataModule says it itself", "nothing")
    if choice.input_key and not plain:
        raise config_error("data._inputs_", choice.input_key, "a batch goes to the module as it is", "nothing")
    if choice.class_count and not plain:
        raise config_error("data._classes_", choice.class_count, "it is for plain nets", "nothing in its place")


def inspect(
    own: Mapping[str, Any],
    optimizer: schemas.Optimizer,
    seed: int,
    samples: Samples,
    batch_size: int | None,
    known: Mapping[str, Any],
) -> dict[str, Any]:
    """By group, the code that is to be called, and the data whatever it is. What they say of themselves.

    `optimizer`: the names of its class, and of those that this one is derived from.
    `module`: None of a plain net; `loaders`: whether the data is no more than DataLoaders; `streams`: whether these are
    of IterableDatasets; `data`: its sizes.

    Args:
        optimizer: that a schedule is tried on.
        samples: what the task takes for a sample.
        known: of the trainer that a module or its data may ask.
    """
    choice, model = own["data"], own.get("model")
    found: dict[str, Any] = {
        "module": None,
        "loaders": False,
        "streams": False,
        "data": {},
        "task": {},
        "scheduler": {},
        "optimizer": [],
    }
    kind = None if model is None else targets.check("model", model.call, dict.fromkeys(FROM_DATA))
    _require_lightning(own, kind)
    if "optimizer" in own:
        made = targets.check("optimizer", {**own["optimizer"].call, PARTIAL: True}, ours=["params"])
        found["optimizer"] = [base.__name__ for base in getattr(made, "__mro__", ())]
    if isinstance(scheduler := own.get("scheduler"), schemas.OwnScheduler):
        from lockstep.schedulers import describe_scheduler  # with torch

        found["scheduler"] = describe_scheduler(scheduler, optimizer)
    if isinstance(task := own.get("task"), schemas.OwnTask):
        targets.check("task", task.call)
        from lockstep.targets.task import describe_task  # with torch

        found["task"] = describe_task(task)
    for one in own.values():
        if isinstance(one, schemas.OwnLogger):
            from lockstep.loggers.for_lightning import check  # with Lightning

            check(one)
        if isinstance(one, schemas.OwnCallback):
            targets.check(one.key, one.call)
    if isinstance(choice, schemas.OwnData):
        from lockstep.data.own import describe, made_by, streams_of  # with torch
        from lockstep.targets.kinds import is_data_module

        made = made_by(choice, seed)
        found["streams"] = streams_of(choice, made) is not None
        found["loaders"] = is_data_module(made) or found["streams"]
        if not found["loaders"]:
            found["data"] = describe(choice, seed, "theirs" if _is_module(kind) else samples, made)
    if model is not None and _is_module(kind):
        from lockstep.session.module_facts import inspect_module  # with torch

        found |= inspect_module(model, choice, found, seed, batch_size, known)
    if found["loaders"] and found["module"] is None:
        from lockstep.session.module_facts import inspect_loaders

        found["data"] = inspect_loaders(choice, seed, batch_size, samples, known)
    return found


def _require_lightning(own: Mapping[str, Any], kind: Any) -> None:
    from lockstep.targets.kinds import of_pytorch_lightning

    if of_pytorch_lightning(kind):
        why = "it derives from pytorch_lightning, whose classes are not those of lightning"
        raise config_error(f"model.{KEY}", own["model"].call[KEY], why, "import lightning.pytorch as pl in its file")


def _is_module(kind: Any) -> bool:
    """Whether it is a LightningModule, or a function of which only a call can tell."""
    from lockstep.targets.kinds import lightning_module

    module = lightning_module()
    return module is not None and kind is not None and (not isinstance(kind, type) or issubclass(kind, module))
