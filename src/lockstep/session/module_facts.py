"""Create a LightningModule; facts about it and its data that the plan needs, found before any rank starts."""

import fcntl
import inspect
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from lockstep import schemas
from lockstep.config_error import require
from lockstep.loaders.loader_facts import batch_facts, facts_of
from lockstep.loaders.loader_source import create_source
from lockstep.random_state import seed_all
from lockstep.schemas.target import KEY
from lockstep.targets.kinds import is_lightning_module, overrides
from lockstep.targets.locate import create, locate


def create_module(choice: schemas.UserLightningModule | schemas.UserModel, seed: int) -> Any:
    """Create what a user's target makes, its weights drawn before anything else: the same on every rank."""
    seed_all(seed)
    return create("model", choice.call)


def inspect_module(options: Mapping[str, Any]) -> tuple[schemas.Model, Any]:
    """Return the model and its LightningModule, or None if the target creates a plain net."""
    model = options["model"]
    module = create_module(model, options["seed"])
    if not is_lightning_module(module):
        return model, None
    key, path = f"model.{KEY}", model.call[KEY]
    trains, reason = overrides(module, "training_step"), "it has no training_step"
    require(trains, key, path, reason, "a LightningModule with one")
    return schemas.UserLightningModule(**vars(model), manual=not module.automatic_optimization), module


def inspect_loaders(options: dict[str, Any], module: Any) -> None:
    """Add facts about the loaders of a LightningModule or of a plain net."""
    data = options["data"]
    if module is None and isinstance(data, schemas.ModelLoaders):
        return  # the plan refuses it
    names = ("max_epochs", "accumulate_grad_batches", "gradient_clip_val", "precision", "log_every_n_steps")
    trainer = {name: options[name] for name in names} | {"max_steps": options["trainer"].max_steps}
    with _lock(locate(f"data.{KEY}", data.call[KEY]) if module is None else type(module)):
        source = create_source(data, module, options["seed"], options["batch_size"])
        facts, defaults = facts_of(source, trainer)
        if module is None:
            facts = replace(facts, **batch_facts(source, options["task"].samples))
    options["data"] = replace(data, **vars(facts))
    options |= {name: options[name] or default for name, default in defaults.items()}


@contextmanager
def _lock(call: Any) -> Iterator[None]:
    """Lock the source file of a class around prepare_data, which may download, since all ranks of torchrun call it."""
    with ExitStack() as stack:
        with suppress(OSError, TypeError):  # it is no class, or defined in no file
            file = stack.enter_context(Path(str(inspect.getsourcefile(call))).open())
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
