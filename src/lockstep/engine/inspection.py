"""Facts about a module and its data, found in a process of their own before any rank starts."""

import fcntl
import inspect
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import BatchSizeFinder, LearningRateFinder
from torch import nn

from lockstep.base.config_error import ConfigError, config_error, require
from lockstep.base.random_state import preserve_generators, seeded
from lockstep.engine.loaders import RankSlice
from lockstep.engine.loaders.source import LoaderSource, create_data, create_module
from lockstep.plan import schemas
from lockstep.plan.schemas.target import BATCH_SIZE, KEY, RECURSIVE
from lockstep.plan.step_plan import StepPlan
from lockstep.plan.targets.kinds import overridden_hooks, overrides
from lockstep.plan.targets.locate import FROM_DATA, check, check_partials, filled, locate, user_errors
from lockstep.runs.loggers import check_logger
from lockstep.strategies.strategy import NET, net_of, stages_of

NAMES = ("max_epochs", "accumulate_grad_batches", "gradient_clip_val", "precision", "log_every_n_steps")
UNBEGUN = {
    **dict.fromkeys(("world_size", "num_devices", "num_nodes"), 1),
    **dict.fromkeys(("global_rank", "local_rank", "node_rank", "current_epoch", "global_step"), 0),
    **dict.fromkeys(("training", "validating", "testing", "predicting", "sanity_checking", "should_stop"), False),
    **dict.fromkeys(("train_dataloader", "val_dataloaders", "test_dataloaders", "logger", "datamodule"), None),
    **dict.fromkeys(("callbacks", "loggers", "optimizers", "lr_scheduler_configs"), ()),
    "is_global_zero": True,
}
"""Attributes of `self.trainer` and of its strategy before any rank starts, beside the options of the plan."""
SINGLE = RankSlice(0, 1)
UNMADE = "its loaders cannot be made."


@preserve_generators()  # in a notebook it runs in the user's process
def inspect_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a plan with facts about its module and data; raise a ConfigError if these do not work."""
    model, data, seed = options["model"], options["data"], options["seed"]
    for logger in options["logger"]:
        check_logger(logger)
    for callback in options["callbacks"]:
        target = check(callback.key, callback.call)
        if isinstance(target, type):
            check_callback(callback, target)
    trainer = SimpleNamespace(**UNBEGUN, **vars(options["trainer"]), **{name: options[name] for name in NAMES})
    check_partials(model)
    check("model", {**model.call, RECURSIVE: False}, dict.fromkeys(FROM_DATA))
    owner = None
    if data.is_module:
        owner = create_data(data, seed)
        _set_up(owner, data, seed, trainer)
        data = replace(data, **_attributes(owner))
        model = replace(model, call=filled(model.call, data))
    module = _create_module(model, seed, on_meta=data.is_module)
    model = replace(model, **_facts_of_module(module))
    if not overrides(module, "configure_model"):  # which may add layers
        options["strategy"].check_module(module, options["devices"])
    if owner is None:
        _set_up(module, data, seed, trainer)
    facts, defaults = _facts_of_loaders(LoaderSource(data, module, seed, options["batch_size"], owner))
    for key in defaults if not defaults["batch_size"] else ():  # the loader has batches of its own making
        passed = key == "batch_size" and options[key] in (*model.call.values(), *data.call.values())
        reason, hint = "train_dataloader makes batches of its own", "data that takes it as an argument, or leave it out"
        require(not options[key] or passed, key, options[key], reason, hint)
    data = replace(data, **facts)
    options = {**options, "model": model, "data": data}
    options |= {name: options[name] or default for name, default in defaults.items()}
    if model.optimizer is not None:
        planned: Any = SimpleNamespace(**{**options, "batch_size": options["batch_size"] or BATCH_SIZE})
        trainer.estimated_stepping_batches = StepPlan(planned).total_steps or float("inf")
        module.trainer = trainer
        try:
            module.configure_optimizers()
        except ConfigError:
            raise
        except Exception:  # of a module without weights; else it is raised again on the ranks
            pass
    return options


def _create_module(model: schemas.Module, seed: int, on_meta: bool) -> Any:
    """Create the module, without memory for its weights if that works: it may be larger than the memory."""
    key, kind = f"model.{KEY}", locate(f"model.{KEY}", model.path)
    if isinstance(kind, type) and issubclass(kind, nn.Module) and not issubclass(kind, pl.LightningModule):
        hint = f"_target_: lockstep.models.Classifier, net: {{_target_: {model.path}, …}}, "
        hint += "optimizer: ${optimizer}, scheduler: ${scheduler}"
        raise config_error(key, model.path, "it is a net, and a LightningModule trains it", hint)
    module = None
    if on_meta:
        with suppress(ConfigError), torch.device("meta"):  # of code that reads its weights, or raised again
            module = create_module(model, seed)
    module = create_module(model, seed) if module is None else module
    reason = f"it makes a {type(module).__name__}, and not a LightningModule"
    require(isinstance(module, pl.LightningModule), key, model.path, reason, "the path of one")
    require(overrides(module, "training_step"), key, model.path, "it has no training_step", "one that has it")
    return module


def _facts_of_module(module: Any) -> dict[str, Any]:
    net = net_of(module)
    stages = [] if net is None else stages_of(net)
    weights = dict(module.named_parameters(remove_duplicate=False)).items()
    can_shard = all(name.startswith(f"{NET}.") and weight.dim() and weight.is_contiguous() for name, weight in weights)
    fits = net is not None and all(isinstance(stage, nn.Module) for stage in stages)
    if net is not None and fits:  # stages that do not hold all weights of the net are not all of it
        fits = {*nn.ModuleList(stages).parameters()} == {*net.parameters()}
    return {
        "manual": not module.automatic_optimization,
        "has_net": net is not None,
        "hooks": overridden_hooks(module),
        "can_shard_net": net is not None and can_shard,
        "stages": len(stages) if fits else 0,
    }


def _attributes(owner: Any) -> dict[str, Any]:
    """Return what a data module tells of its samples."""
    facts = {name: getattr(owner, name, None) for name in ("num_outputs", "num_classes")}
    shape, names = getattr(owner, "sample_shape", None), getattr(owner, "class_names", None) or ()
    facts["sample_shape"] = None if shape is None else tuple(map(int, shape))
    return {**facts, "class_names": tuple(map(str, names))}


def check_callback(choice: schemas.Callback, cls: type) -> None:
    """Raise if a class is no callback of Lightning, or one that trains before the run."""
    reason = f"it makes a {cls.__name__}, and not a Callback of Lightning"
    require(issubclass(cls, pl.Callback), f"{choice.key}.{KEY}", choice.call[KEY], reason, "the path of one")
    searches, hint = issubclass(cls, LearningRateFinder | BatchSizeFinder), "-m optimizer.lr=0.001,0.01,0.1, say"
    require(not searches, f"{choice.key}.{KEY}", choice.call[KEY], "it searches by trial steps before a run", hint)


def _set_up(owner: Any, data: schemas.Data, seed: int, trainer: SimpleNamespace) -> None:
    """Prepare the data, and set it up for training. `trainer` has the attributes that are known already.

    Under a lock of its source file: it may download, and all ranks of torchrun call this.
    """
    trainer.strategy = owner.trainer = trainer
    trainer.datamodule = owner if data.is_module else None
    with ExitStack() as stack:
        with suppress(OSError, TypeError):  # it may be defined in no file
            file = stack.enter_context(Path(str(inspect.getsourcefile(type(owner)))).open())
            fcntl.flock(file, fcntl.LOCK_EX)
        with user_errors(f"data.{KEY}={data.name}", UNMADE):
            owner.prepare_data()
            seeded(seed, lambda: owner.setup("fit"))


def _facts_of_loaders(source: LoaderSource) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return facts about loaders whose data is set up, and their batch size and drop_last for the plan."""
    owner, name = source.owner, source.choice.name
    with user_errors(f"data.{KEY}={name}", UNMADE):
        if not source.has("train"):
            chosen = name if source.choice.is_module else "none"
            raise config_error("data", chosen, "it has no train_dataloader", "data with one")
        train = source.loaders("train", SINGLE)[0]
        defaults = {"batch_size": train.global_batch_size, "drop_last": train.drop_last}
        facts: dict[str, Any] = {"train_samples": train.samples, "regular": train.regular}
        with suppress(TypeError, NotImplementedError):  # of unknown length
            facts["train_batches"] = len(train)
        for stage in ("val", "test"):
            if stage == "test" and source.has("test"):
                seeded(source.seed, lambda: owner.setup("test"))
            loaders = source.loaders(stage, SINGLE) if source.has(stage) else []
            facts[f"{stage}_size"] = sum(loader.samples or 1 for loader in loaders)
            facts[f"{stage}_batch_sizes"] = tuple(loader.global_batch_size for loader in loaders)
    return facts, defaults
