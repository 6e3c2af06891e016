"""Lightning's LearningRateFinder and BatchSizeFinder: they find values of keys by trial steps before the run.

Trials are in no record: they are of another module in a stock Trainer on one device, in the process of the inspection.
The run that follows is the one whose values were typed.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import BatchSizeFinder, LearningRateFinder
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.utilities.parsing import lightning_getattr, lightning_hasattr

from lockstep.base.config_error import require
from lockstep.engine.loaders import RankSlice
from lockstep.engine.loaders.source import create_module, create_source
from lockstep.plan import schemas
from lockstep.plan.schemas.target import KEY
from lockstep.plan.targets.kinds import replace_method
from lockstep.plan.targets.locate import create, locate, parameters_of, user_errors

NAMES = ("accelerator", "precision", "max_epochs", "accumulate_grad_batches", "gradient_clip_val")
KINDS = (LearningRateFinder, BatchSizeFinder)


def is_finder(choice: schemas.Callback) -> bool:
    kind = locate(f"{choice.key}.{KEY}", choice.path)
    return isinstance(kind, type) and issubclass(kind, KINDS)


def search(options: Mapping[str, Any], choices: Sequence[schemas.Callback]) -> dict[str, Any]:
    """Return the found values by key, in the options of a plan that the inspection has completed; print each."""
    found: dict[str, Any] = {}
    for choice in choices:
        finder: Any = create(choice.key, choice.call)
        fits = type(finder).on_fit_start in [kind.on_fit_start for kind in KINDS]
        reason, hint = "it searches within training, and here a search comes before it", "LearningRateFinder"
        require(fits, "callbacks", choice.name, reason, hint)
        if isinstance(finder, LearningRateFinder):
            key, applies = rate_key(options["model"], choice, finder._attr_name), finder._update_attr
            finder._update_attr = False  # the run gets the value by its key
            value = fit(options, finder, found).optimal_lr.suggestion()
            reason, hint = "it has measured too few finite losses", "another num_training_steps, min_lr or max_lr"
            require(value is not None, "callbacks", choice.name, reason, hint)
            value = float(f"{value:.3g}")
        else:
            strategy, reason = options["strategy"].name, "BatchSizeFinder measures the memory of one device"
            require(strategy == "single", "strategy", strategy, reason, "strategy=single, or callbacks=none")
            key, applies, value = "batch_size", True, fit(options, finder, found).optimal_batch_size
        plus = "+" * (key.startswith("model.") and key[6:] not in options["model"].call)
        print(f"{choice.name}: {plus}{key}={value}, found by trial steps; type it in place of the search", flush=True)
        found |= {key: value} if applies else {}
        found |= {choice.key: None} if "." in choice.key else {}  # so that a resumed run does not search again
    return found


def rate_key(model: schemas.Module, choice: schemas.Callback, attribute: str) -> str:
    """Return the key of the learning rate: the optimizer's, or that of the module's own argument."""
    if model.optimizer is not None and not attribute:
        return f"{model.key_of('optimizer')}.lr"
    taken = {*model.call, *parameters_of(locate(f"model.{KEY}", model.path))}
    names = [name for name in ([attribute] if attribute else ["lr", "learning_rate"]) if name in taken]
    reason = f"{model.name} takes no {attribute or 'lr or learning_rate'}"
    require(bool(names), "callbacks", choice.name, reason, "a module that takes it")
    return f"model.{names[0]}"


def fit(options: Mapping[str, Any], finder: Any, found: Mapping[str, Any]) -> Any:
    """Return a finder after its search, with the found batch size and batches in the order of a run."""
    module, size = create_module(options["model"], options["seed"]), found.get("batch_size", options["batch_size"])
    source = create_source(options["data"], module, options["seed"], size)
    name, finder._early_exit = getattr(finder, "_batch_arg_name", "batch_size"), True
    if not lightning_hasattr(module, name):
        object.__setattr__(source.owner, name, size)
        object.__setattr__(module, name, size)

    def train_loader() -> Any:
        if isinstance(finder, BatchSizeFinder):
            source.batch_size = lightning_getattr(module, name)
        return source.loaders("train", RankSlice(0, 1))[0]

    def configured(original: Any) -> Any:
        returned, trainer.fit_loop.max_epochs = original(), -1  # schedules may ask how long the run is
        return returned

    object.__setattr__(source.owner, "train_dataloader", train_loader)
    replace_method(module, "configure_optimizers", configured)
    with ExitStack() as stack:
        logging.disable(logging.INFO)
        stack.callback(logging.disable, logging.NOTSET)
        stack.enter_context(user_errors(f"callbacks: {type(finder).__name__}", "its trial steps fail."))
        trainer = pl.Trainer(
            **{key: options[key] for key in NAMES},
            max_steps=options["trainer"].max_steps,
            limit_train_batches=options["trainer"].limit_train_batches,
            devices=1,
            plugins=[LightningEnvironment()],
            callbacks=[finder],
            default_root_dir=stack.enter_context(TemporaryDirectory()),
            use_distributed_sampler=False,
            num_sanity_val_steps=0,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, datamodule=source.data_module)
    return finder
