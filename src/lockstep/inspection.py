"""Before any rank starts: what code of the user's own comes to, that a configuration names.

It is asked in a child of the fork server, so that the command imports no torch and nothing of theirs is kept; in this
process where it is itself the rank.
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
from lockstep.schemas import groups
from lockstep.schemas.engine import ENGINES
from lockstep.schemas.own_data import BATCH_SIZE
from lockstep.schemas.target import KEY, PARTIAL
from lockstep.schemas.task import Samples
from lockstep.targets.kinds import is_data_module, lightning_module, of_pytorch_lightning
from lockstep.targets.locate import check

KNOWN = ("max_epochs", "accumulate_grad_batches", "gradient_clip_val", "precision", "log_every_n_steps")
"""What `self.trainer` has by these names before any rank starts."""

FROM_DATA = ("shape", "outputs")
"""What a net gets from the data, if it has parameters of these names."""


def inspected(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a plan, with what its data says of itself.

    Raises:
        ConfigError: a target cannot be imported, takes other arguments, or makes something else than it should.
    """
    own = {group: values[group] for group in groups.OWN_CODE if isinstance(values[group], schemas.Target)}
    own |= {one.key: one for group in groups.SEVERAL for one in values[group] if isinstance(one, schemas.OneOfSeveral)}
    size = 0
    if own:
        values, size = _with(values, _asked(values, own))
    return {**values, "batch_size": size or BATCH_SIZE} if values["batch_size"] is None else values


def _asked(values: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    samples = values["task"].samples
    known = {name: values[name] for name in KNOWN} | {"max_steps": values["trainer"].max_steps}
    asked = {**own, "data": values["data"]}, values["optimizer"], values["seed"], samples, values["batch_size"], known
    if rank_from_env() is not None or values["strategy"].in_process:
        from lockstep.targets.edited import edited_modules_anew

        with edited_modules_anew():
            return inspect(*asked)
    engine = values["engine"].name
    forkserver.start_forkserver(*(ENGINES[name] for name in ENGINES if engine in (name, "both")))
    from lockstep.launch.child import in_child  # with torch

    facts: dict[str, Any] = in_child(inspect, *asked)
    return facts


UNREPEATABLE = (
    "read twice under one seed it gives other samples, so no run on it is repeated or resumed exactly: it draws by the "
    "clock or from a generator of its own (webdataset's shuffle does, without rng=random)"
)


def _with(values: dict[str, Any], facts: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Return the values with the facts about the model, the task and the data; and the batch size of a loader."""
    values["strategy"].check_optimizer(facts["optimizer"])
    model, choice, data = values["model"], values["data"], {**facts["data"]}
    if facts["module"] is not None:
        model = schemas.OwnModule(model.name, model._target_, model.arguments, **facts["module"])
    values = values | {group: replace(values[group], **facts[group]) for group in ("task", "scheduler") if facts[group]}
    size, dropping = data.pop("size", 0), data.pop("drop_last", False)
    if not data.pop("repeatable", True) and is_rank_zero(rank_from_env()):
        notice(f"data={choice.name}: {UNREPEATABLE}")
    if facts["loaders"] and isinstance(choice, schemas.OwnData):
        _require_none_of_ours(choice, facts["streams"], facts["module"] is None)
        choice = choice.as_loaders
    if data:
        choice = replace(choice, **{name: tuple(own) if isinstance(own, list) else own for name, own in data.items()})
    tests = values["test"] and (not data or data["test_size"] > 0)
    dropping = values["drop_last"] or dropping
    return {**values, "model": model, "data": choice, "test": tests, "drop_last": dropping}, size


def _require_none_of_ours(choice: schemas.OwnData, streams: bool, plain: bool) -> None:
    """Refuse keys that do nothing. Of IterableDatasets loaders are made here; classes count for a plain net."""
    says = "a LightningDataModule says it itself"
    if streams:
        hint = "data.train=…, data.val=… and data.test=… of targets"
        require(not choice.split, "data._split_", choice.split, "an IterableDataset cannot be divided", hint)
    else:
        require(not choice.split, "data._split_", choice.split, says, "nothing in its place")
        require(not choice.loader, "data._loader_", choice.loader, says, "nothing")
    if not plain:
        reason = "a batch goes to the module as it is"
        require(not choice.input_key, "data._inputs_", choice.input_key, reason, "nothing")
        require(
            not choice.class_count, "data._classes_", choice.class_count, "it is for plain nets", "nothing in its place"
        )


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
    facts: dict[str, Any] = {"module": None, "loaders": False, "streams": False}
    facts |= {"data": {}, "task": {}, "scheduler": {}, "optimizer": []}
    kind = None if model is None else check("model", model.call, dict.fromkeys(FROM_DATA))
    reason = "it derives from pytorch_lightning, whose classes are not those of lightning"
    fits, hint = not of_pytorch_lightning(kind), "import lightning.pytorch as pl in its file"
    require(fits, f"model.{KEY}", model and model.call[KEY], reason, hint)
    lightning = lightning_module()
    is_module = None not in (kind, lightning) and (not isinstance(kind, type) or issubclass(kind, lightning))  # type: ignore[arg-type]
    if "optimizer" in own:
        made = check("optimizer", {**own["optimizer"].call, PARTIAL: True}, ours=["params"])
        facts["optimizer"] = [base.__name__ for base in getattr(made, "__mro__", ())]
    if "scheduler" in own:
        from lockstep.schedulers import describe_scheduler  # with torch

        facts["scheduler"] = describe_scheduler(own["scheduler"], optimizer)
    if "task" in own:
        check("task", own["task"].call)
        from lockstep.targets.task import describe_task  # with torch

        facts["task"] = describe_task(own["task"])
    for one in own.values():
        if isinstance(one, schemas.OwnLogger):
            from lockstep.loggers import lightning_adapter  # with Lightning

            lightning_adapter.check(one)
        if isinstance(one, schemas.OwnCallback):
            check(one.key, one.call)
    if isinstance(choice, schemas.OwnData):
        from lockstep.data.user_data import create_data, describe, streams_of  # with torch

        made = create_data(choice, seed)
        facts["streams"] = streams_of(choice, made) is not None
        facts["loaders"] = is_data_module(made) or facts["streams"]
        if not facts["loaders"]:
            facts["data"] = describe(choice, seed, "theirs" if is_module else samples, made)
    if model is not None and is_module:  # or a function of which only a call can tell
        from lockstep.session.module_facts import inspect_module  # with torch

        facts |= inspect_module(model, choice, facts, seed, batch_size, known)
    if facts["loaders"] and facts["module"] is None:
        from lockstep.session.module_facts import inspect_loaders

        facts["data"] = inspect_loaders(choice, seed, batch_size, samples, known)
    return facts
