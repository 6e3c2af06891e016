"""Facts about a LightningModule and its data that the plan needs, found before any rank starts."""

import fcntl
import inspect
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from lockstep import schemas
from lockstep.config_error import require
from lockstep.loaders.loader_facts import facts_of, sample_facts
from lockstep.loaders.loader_source import create_source
from lockstep.schemas.facts import CodeFacts, ModelFacts
from lockstep.schemas.target import KEY
from lockstep.session.create_model import create_module, data_arguments
from lockstep.targets.kinds import is_lightning_module, overrides
from lockstep.targets.locate import locate


def inspect_module(options: Mapping[str, Any], facts: CodeFacts) -> None:
    """Add the facts about a LightningModule and its loaders; none if the target makes a plain net after all.

    Args:
        options: of the plan.
        facts: about the data.

    Raises:
        ConfigError: the module cannot be trained.
    """
    model, choice, seed = options["model"], options["data"], options["seed"]
    call = locate(f"model.{KEY}", model.call[KEY])
    module = create_module(model, data_arguments(call, choice, facts.data, seed), seed, require_module=False)
    if not is_lightning_module(module):
        return
    key, path = f"model.{KEY}", model.call[KEY]
    trains, reason = overrides(module, "training_step"), "it has no training_step"
    require(trains, key, path, reason, "a LightningModule with one")
    facts.model = ModelFacts(manual=not module.automatic_optimization)
    if facts.in_loaders or isinstance(choice, schemas.ModelLoaders):
        facts.in_loaders = True
        with _lock(call):
            choice = choice.as_loaders if isinstance(choice, schemas.UserData) else choice
            source = create_source(choice, module, seed, options["batch_size"])
            facts.data, facts.loader = facts_of(source, trainer_attributes(options))


def inspect_loaders(options: Mapping[str, Any], facts: CodeFacts) -> None:
    """Add the facts about loaders that a plain net is trained on.

    Raises:
        ConfigError: there is no training data, or its batches do not fit the task.
    """
    choice = options["data"]
    with _lock(locate(f"data.{KEY}", choice.call[KEY])):
        source = create_source(choice.as_loaders, None, options["seed"], options["batch_size"])
        loaders, facts.loader = facts_of(source, trainer_attributes(options))
        facts.data = replace(loaders, **sample_facts(source, options["task"].samples))


def trainer_attributes(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of `self.trainer` that are known before any rank starts."""
    names = ("max_epochs", "accumulate_grad_batches", "gradient_clip_val", "precision", "log_every_n_steps")
    return {name: options[name] for name in names} | {"max_steps": options["trainer"].max_steps}


@contextmanager
def _lock(call: Any) -> Iterator[None]:
    """Lock the source file of a class around prepare_data, which may download, since all ranks of torchrun call it."""
    with ExitStack() as stack:
        with suppress(OSError, TypeError):  # it is no class, or defined in no file
            file = stack.enter_context(Path(str(inspect.getsourcefile(call))).open())
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
