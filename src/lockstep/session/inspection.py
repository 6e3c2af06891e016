"""Facts about a module and its data, found in a process of their own before any rank starts."""

import fcntl
import inspect
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from lockstep import schemas
from lockstep.config_error import ConfigError, require
from lockstep.loaders.loader_source import create_data, create_source, facts_of, set_up
from lockstep.parallel.net_proxy import NET, net_of
from lockstep.random_state import preserve_generators
from lockstep.safe_loading import is_loadable, plain
from lockstep.schemas.former import net_error
from lockstep.schemas.target import ARGS, BATCH_SIZE, KEY
from lockstep.session.callbacks import check_callback
from lockstep.session.lightning_module import configured, create_module
from lockstep.step_plan import StepPlan
from lockstep.targets.kinds import derives_from, is_lightning_module, overridden_hooks, overrides
from lockstep.targets.locate import check, create, filled, locate, user_errors

NAMES = ("max_epochs", "accumulate_grad_batches", "gradient_clip_val", "precision", "log_every_n_steps")


@preserve_generators()  # in a notebook it runs in the user's process
def inspect_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a plan with facts about its module and data; raise a ConfigError if these do not work."""
    model, data, seed = options["model"], options["data"], options["seed"]
    for logger in options["logger"]:
        if logger.options is None:
            from lockstep.loggers import lightning_adapter

            lightning_adapter.check(logger)
    for callback in options["callbacks"]:
        target = check(callback.key, callback.call)
        if isinstance(target, type):
            check_callback(callback, target, saves=not options["trainer"].barebones)
    trainer = SimpleNamespace(**{name: options[name] for name in NAMES}, max_steps=options["trainer"].max_steps)
    if model.optimizer is not None:
        check_optimizer(model.optimizer_key, model.optimizer)
    owner = None
    if data.is_module:
        owner = create_data(data, seed)
        _set_up(owner, data, seed, trainer)
        data = replace(data, **_attributes(owner))
        model = replace(model, call=filled(model.call, data))
    module = _create_module(model, seed, on_meta=data.is_module)
    model = replace(model, **_facts_of_module(model, module))
    if owner is None:
        _set_up(module, data, seed, trainer)
    facts, defaults = facts_of(create_source(data, module, seed, options["batch_size"], owner or module))
    data = replace(data, **facts)
    options = {**options, "model": model, "data": data}
    options |= {name: options[name] or default for name, default in defaults.items()}
    if model.optimizer is not None:
        planned: Any = SimpleNamespace(**{**options, "batch_size": options["batch_size"] or BATCH_SIZE})
        trainer.estimated_stepping_batches = StepPlan(planned).total_steps or float("inf")
        _check_optimizers(module, trainer)
    return options


def _create_module(model: schemas.Module, seed: int, on_meta: bool) -> Any:
    """Create the module, without memory for its weights if that works: it may be larger than the memory."""
    kind = locate(f"model.{KEY}", model.path)
    if isinstance(kind, type) and issubclass(kind, nn.Module) and not derives_from(kind, "lightning.pytorch"):
        raise net_error(model.call)
    if on_meta:
        with suppress(ConfigError), torch.device("meta"):  # of code that reads its weights, or raised again
            return create_module(model, seed)
    return create_module(model, seed)


def _facts_of_module(model: schemas.Module, module: Any) -> dict[str, Any]:
    key, kind = f"model.{KEY}", type(module).__name__
    reason = f"it makes a {kind}, and not a LightningModule"
    require(is_lightning_module(module), key, model.path, reason, "the path of one")
    require(overrides(module, "training_step"), key, model.path, "it has no training_step", "one that has it")
    net = net_of(module)
    weights = dict(module.named_parameters(remove_duplicate=False)).items()
    can_shard = all(name.startswith(f"{NET}.") and weight.dim() and weight.is_contiguous() for name, weight in weights)
    stages = getattr(net, "stages", ())
    stages = [*stages] if isinstance(stages, Iterable) else []
    fits = net is not None and all(isinstance(stage, nn.Module) for stage in stages)
    if net is not None and fits:  # stages that do not hold all weights of the net are not all of it
        fits = {*nn.ModuleList(stages).parameters()} == {*net.parameters()}
    facts: dict[str, Any] = {"manual": not module.automatic_optimization, "has_net": net is not None}
    facts["hooks"] = overridden_hooks(module)
    return {**facts, "can_shard_net": net is not None and can_shard, "stages": len(stages) if fits else 0}


def _attributes(owner: Any) -> dict[str, Any]:
    """Return what a data module tells of its samples."""
    facts = {name: getattr(owner, name, None) for name in ("num_outputs", "num_classes")}
    shape, names = getattr(owner, "sample_shape", None), getattr(owner, "class_names", None) or ()
    facts["sample_shape"] = None if shape is None else tuple(map(int, shape))
    return {**facts, "class_names": tuple(map(str, names))}


def check_optimizer(key: str, call: Mapping[str, Any]) -> None:
    """Create an optimizer of one parameter, so that wrong values are told by the key that was typed."""
    check(key, {**call, ARGS: [None]})
    optimizer = create(key, call)
    if callable(optimizer):
        with user_errors(f"{key}.{KEY}={call[KEY]}", "it raises this when it is called."):
            optimizer([nn.Parameter(torch.zeros(2, 2))])


def _check_optimizers(module: Any, trainer: SimpleNamespace) -> None:
    """Raise if a schedule does not fit the run or a checkpoint. Other errors may be of a module without weights."""
    module.trainer = trainer
    try:
        _, schedules = configured(module.configure_optimizers())
        states = [(config.scheduler, config.scheduler.state_dict()) for config in schedules]
    except ConfigError:
        raise
    except Exception:  # raised again on the ranks, if it is one there
        return
    for schedule, state in states:
        reason = "its state is more than plain values and tensors, so no checkpoint can be loaded that holds it"
        hint = "one without what cannot be pickled safely"
        require(is_loadable(plain(state)), "scheduler", type(schedule).__name__, reason, hint)


def _set_up(owner: Any, data: schemas.Data, seed: int, trainer: SimpleNamespace) -> None:
    """Set up data under a lock of its source file: it may download, and all ranks of torchrun call this."""
    with ExitStack() as stack:
        with suppress(OSError, TypeError):  # it may be defined in no file
            file = stack.enter_context(Path(str(inspect.getsourcefile(type(owner)))).open())
            fcntl.flock(file, fcntl.LOCK_EX)
        set_up(owner, data, seed, trainer)
