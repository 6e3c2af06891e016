"""Facts about a LightningModule and its data that the plan needs, found before any rank starts."""

import fcntl
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.nn.parameter import is_lazy

from lockstep import schemas
from lockstep.config_error import require
from lockstep.loaders.loader_facts import facts_of, sample_facts
from lockstep.loaders.loader_source import create_source
from lockstep.schemas.target import KEY
from lockstep.schemas.task import Samples
from lockstep.session.create_model import create_module, data_arguments
from lockstep.targets.kinds import is_lightning_module, overrides
from lockstep.targets.locate import locate


def inspect_module(
    model: schemas.OwnNet,
    choice: schemas.Data,
    facts: Mapping[str, Any],
    seed: int,
    batch_size: int | None,
    known: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the facts `module`, `loaders` and `data` of `lockstep.inspection`, or nothing for a plain net.

    Args:
        facts: known facts about the data.
        known: about the trainer.

    Raises:
        ConfigError: the module cannot be trained.
    """
    key, path = f"model.{KEY}", model.call[KEY]
    call = locate(key, path)
    module = create_module(model, data_arguments(call, choice, facts["data"], seed), seed, require_module=False)
    if not is_lightning_module(module):
        return {}
    trains, reason = overrides(module, "training_step"), "it has no training_step"
    require(trains, key, path, reason, "a LightningModule with one")
    takes_iterator = "dataloader_iter" in inspect.signature(module.training_step).parameters
    reason = "its training_step takes the loader's iterator, and batches are divided among ranks here"
    require(not takes_iterator, key, path, reason, "one with training_step(self, batch, batch_idx)")
    lazy = any(map(is_lazy, (*module.parameters(), *module.buffers())))
    require(not lazy, key, path, "it has lazy layers, whose sizes only a batch tells", "layers with their sizes")
    answer: dict[str, Any] = {"module": {"manual": not module.automatic_optimization}}
    if facts["loaders"] or isinstance(choice, schemas.ModelLoaders):
        if isinstance(choice, schemas.OwnData):
            choice = choice.as_loaders
        with _lock(call):
            answer["data"] = facts_of(create_source(choice, module, seed, batch_size), known)
        answer["loaders"] = True
    return answer


def inspect_loaders(
    choice: schemas.OwnData, seed: int, batch_size: int | None, samples: Samples, known: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the facts about loaders that the plan of a plain net needs, by the fields of OwnLoaders.

    Raises:
        ConfigError: there is no training data, or its batches do not fit the task.
    """
    with _lock(locate(f"data.{KEY}", choice.call[KEY])):
        source = create_source(choice.as_loaders, None, seed, batch_size)
        return facts_of(source, known) | sample_facts(source, samples)


@contextmanager
def _lock(call: Any) -> Iterator[None]:
    """Lock the source file of a class around prepare_data, which may download, since all ranks of torchrun call it."""
    try:
        source = Path(str(inspect.getsourcefile(call)))
    except (OSError, TypeError):  # it is no class, or defined in no file
        source = Path()
    if not isinstance(call, type) or not source.is_file():
        yield
        return
    with source.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
