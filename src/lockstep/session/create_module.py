"""Create a user's LightningModule, with what it may ask of its data."""

import inspect
from collections.abc import Mapping
from typing import Any

from lockstep import data, schemas
from lockstep.config_error import require
from lockstep.random_state import seed_all
from lockstep.schemas.target import KEY
from lockstep.targets.kinds import is_lightning_module
from lockstep.targets.locate import create


def create_module(
    choice: schemas.OwnModule | schemas.OwnNet, facts: Mapping[str, Any], seed: int, require_module: bool = True
) -> Any:
    """Return a user's module, its weights drawn under the run's seed before anything else, the same on every rank.

    Args:
        facts: arguments that it gets if it has parameters of these names: shape, outputs.
        require_module: whether it has to be a LightningModule.

    Raises:
        ConfigError: the target makes no LightningModule, or one without a training_step.
    """
    seed_all(seed)
    module = create("model", choice.call, facts)
    reason = f"it makes a {type(module).__name__}, and not a LightningModule"
    fits = is_lightning_module(module) or not require_module
    require(fits, f"model.{KEY}", choice.call[KEY], reason, "the path of a LightningModule")
    return module


def data_arguments(call: Any, choice: schemas.Data, known: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return the arguments `shape` and `outputs` of a module, if it has parameters of these names."""
    try:
        names = {*inspect.signature(call).parameters} & {"shape", "outputs"}
    except (ValueError, TypeError):
        return {}
    if not names or isinstance(choice, schemas.Loaders):
        return {}
    if known:
        return {"shape": tuple(known["shape"]), "outputs": known["outputs"]}
    data.prepare(choice)
    splits = data.load_splits(choice, seed, samples="theirs")
    return {"shape": splits.shape, "outputs": splits.outputs}
