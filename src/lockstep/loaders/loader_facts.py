"""What a plan needs to know of the loaders, before any rank starts: samples, batches, sizes, repeatability."""

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from lockstep import schemas
from lockstep.config_error import config_error
from lockstep.loaders.loader_source import LoaderSource
from lockstep.loaders.rank_loader import RankSlice
from lockstep.random_state import seeded
from lockstep.schemas.target import KEY
from lockstep.targets.locate import user_errors

SINGLE = RankSlice(0, 1)


ONE_PROCESS = {
    **dict.fromkeys(("world_size", "num_devices", "num_nodes"), 1),
    **dict.fromkeys(("global_rank", "local_rank", "node_rank"), 0),
    "is_global_zero": True,
}
"""Attributes of `self.trainer` and of its strategy before any rank starts."""

UNMADE = "its loaders cannot be made."


def set_up(owner: Any, choice: schemas.Data, seed: int, trainer: SimpleNamespace) -> None:
    """Prepare the data, and set it up for training. `trainer` has the attributes that are known already."""
    vars(trainer).update(ONE_PROCESS)
    trainer.strategy = owner.trainer = trainer
    with user_errors(f"data.{KEY}={choice.name}", UNMADE):
        owner.prepare_data()
        seeded(seed, lambda: owner.setup("fit"))


def facts_of(source: LoaderSource) -> tuple[dict[str, Any], dict[str, Any]]:
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
