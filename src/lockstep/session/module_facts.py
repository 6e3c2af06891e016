"""What a LightningModule and its data say of themselves, before any rank starts."""

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
    found: Mapping[str, Any],
    seed: int,
    batch_size: int | None,
    known: Mapping[str, Any],
) -> dict[str, Any]:
    """`module`, `loaders` and `data` as `lockstep.inspection` has them; nothing where it is a plain net after all.

    Args:
        found: what is known of the data.
        known: of the trainer.

    Raises:
        ConfigError: it cannot be trained.
    """
    call = locate(f"model.{KEY}", model.call[KEY])
    facts = data_arguments(call, choice, found["data"], seed)
    module = create_module(model, facts, seed, require_module=False)
    if not is_lightning_module(module):
        return {}
    key, path = f"model.{KEY}", model.call[KEY]
    trains, reason = overrides(module, "training_step"), "it has no training_step"
    require(trains, key, path, reason, "a LightningModule with one")
    takes = "dataloader_iter" in inspect.signature(module.training_step).parameters
    reason = "its training_step takes the loader's iterator, and batches are divided among ranks here"
    require(not takes, key, path, reason, "one with training_step(self, batch, batch_idx)")
    lazy = any(map(is_lazy, (*module.parameters(), *module.buffers())))
    require(not lazy, key, path, "it has lazy layers, whose sizes only a batch tells", "layers with their sizes")
    answer: dict[str, Any] = {"module": {"manual": not module.automatic_optimization}}
    if found["loaders"] or isinstance(choice, schemas.ModelLoaders):
        if isinstance(choice, schemas.OwnData):
            choice = choice.as_loaders
        with _one_at_a_time(call):
            answer["data"] = facts_of(create_source(choice, module, seed, batch_size), known)
        answer["loaders"] = True
    return answer


def inspect_loaders(
    choice: schemas.OwnData, seed: int, batch_size: int | None, samples: Samples, known: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a plain net's plan has to know of loaders, by the fields of OwnLoaders.

    Raises:
        ConfigError: there is nothing to train on, or its batches are not what the task takes.
    """
    with _one_at_a_time(locate(f"data.{KEY}", choice.call[KEY])):
        source = create_source(choice.as_loaders, None, seed, batch_size)
        return facts_of(source, known) | sample_facts(source, samples)


@contextmanager
def _one_at_a_time(call: Any) -> Iterator[None]:
    """Lock a file around prepare_data, which may download: all ranks of an external launcher call it."""
    try:
        source = inspect.getsourcefile(call) if isinstance(call, type) else None
    except (OSError, TypeError):  # it is defined in no file
        source = None
    if source is None or not Path(source).is_file():
        yield
        return
    with Path(source).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
