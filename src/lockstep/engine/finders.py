"""Lightning's LearningRateFinder and BatchSizeFinder: they find values of keys by trial steps before the run.

Trials are in no record: they train another module, in a stock Trainer on one device, in the process of the inspection.
The run that follows is the one whose values were typed.
"""

import logging
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import Any

import lightning.pytorch as pl
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.callbacks import BatchSizeFinder, LearningRateFinder
from lightning.pytorch.utilities.parsing import lightning_getattr, lightning_hasattr

from lockstep.base.config_error import require
from lockstep.base.private_api import lightning as private
from lockstep.engine.loaders import RankSlice
from lockstep.engine.loaders.source import LoaderSource, create_module
from lockstep.plan import schemas
from lockstep.plan.schemas.target import KEY
from lockstep.plan.targets.kinds import replace_method
from lockstep.plan.targets.locate import create, locate, parameters_of, user_errors

NAMES = ("accelerator", "precision", "max_epochs", "accumulate_grad_batches", "gradient_clip_val")


def search(options: Mapping[str, Any], choice: schemas.Callback) -> dict[str, Any]:
    """Return what a callback finds, by key, for options that the inspection has completed, and print the words."""
    finder, model = create(choice.key, choice.call), options["model"]
    fits = type(finder).on_fit_start in (LearningRateFinder.on_fit_start, BatchSizeFinder.on_fit_start)
    reason = "it searches within training, and a search comes before it"
    require(fits, "callbacks", choice.name, reason, "LearningRateFinder or BatchSizeFinder")
    if isinstance(finder, LearningRateFinder):
        name, applies = private.searched_attribute(finder)
        key = rate_key(model, choice, name)
        rate = fit(options, finder, "batch_size").optimal_lr.suggestion()
        reason = "it has measured too few finite losses"
        require(rate is not None, "callbacks", choice.name, reason, "another num_training_steps, min_lr or max_lr")
        values = {key: float(f"{rate:.3g}")}
    else:
        strategy, reason = options["strategy"], "BatchSizeFinder measures the memory of one device"
        require(strategy.one_device, "strategy", strategy.name, reason, "strategy=single, or callbacks=none")
        size_name, applies = private.searched_attribute(finder)[0], True
        values = {"batch_size": fit(options, finder, size_name).optimal_batch_size}
    for key, value in values.items():
        plus = "+" * (key.startswith("model.") and key.partition(".")[2] not in model.call)
        print(f"{choice.name}: {plus}{key}={value}, found by trial steps; type it in place of the search", flush=True)
    return values if applies else {}


def rate_key(model: schemas.Module, choice: schemas.Callback, attribute: str) -> str:
    """Return the key of the learning rate: the optimizer's, or that of the module's own argument."""
    if model.optimizer is not None and not attribute:
        return f"{model.key_of('optimizer')}.lr"
    arguments = {*model.call, *parameters_of(locate(f"model.{KEY}", model.path))}
    names = [name for name in ([attribute] if attribute else ["lr", "learning_rate"]) if name in arguments]
    reason = f"{model.name} takes no {attribute or 'lr or learning_rate'}"
    require(bool(names), "callbacks", choice.name, reason, "a module that takes it")
    return f"model.{names[0]}"


def fit(options: Mapping[str, Any], finder: Any, size_name: str) -> Any:
    """Return a finder after its search, by the batches of a run; `size_name`: its attribute for their size."""
    module, size = create_module(options["model"], options["seed"]), options["batch_size"]
    source = LoaderSource(options["data"], module, options["seed"], size)
    if not lightning_hasattr(module, size_name):
        object.__setattr__(module, size_name, size)

    def train_loader() -> Any:
        source.batch_size = lightning_getattr(module, size_name) if isinstance(finder, BatchSizeFinder) else size
        return source.loaders("train", RankSlice(0, 1))[0]

    def configured(original: Any) -> Any:
        returned, trainer.fit_loop.max_epochs = original(), -1  # schedules may have asked how long the run is
        return returned

    object.__setattr__(source.owner, "train_dataloader", train_loader)
    replace_method(module, "configure_optimizers", configured)
    private.search_alone(finder)
    flags = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    given: dict[str, Any] = {name: options[name] for name in NAMES} | dict.fromkeys(flags, False)
    with ExitStack() as stack:
        logging.disable(logging.INFO)
        stack.callback(logging.disable, logging.NOTSET)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # the run itself will repeat those that count
        stack.enter_context(user_errors(f"callbacks: {type(finder).__name__}", "its trial steps fail."))
        trainer = pl.Trainer(
            **given,
            devices=1,
            plugins=[LightningEnvironment()],
            callbacks=[finder],
            default_root_dir=stack.enter_context(TemporaryDirectory()),
            use_distributed_sampler=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(module, datamodule=source.data_module)
    return finder
