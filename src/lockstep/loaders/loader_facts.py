"""What a plan needs to know of a user's loaders, before any rank starts: samples, batches, sizes, repeatability."""

from collections.abc import Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from lockstep import schemas
from lockstep.config_error import config_error
from lockstep.data.samples import keys_of, pair_of, targets_for_loss, values_of_batch
from lockstep.data.tensors import STAGES
from lockstep.data.user_data import outputs_of, sample_facts
from lockstep.loaders.loader_source import METHOD, LoaderSource
from lockstep.loaders.rank_loader import RankSlice
from lockstep.random_state import preserve_generators, seeded
from lockstep.schemas.target import KEY
from lockstep.schemas.task import Samples
from lockstep.targets.locate import user_errors

SINGLE = RankSlice(0, 1)


ONE_PROCESS = {
    **dict.fromkeys(("world_size", "num_devices", "num_nodes"), 1),
    **dict.fromkeys(("global_rank", "local_rank", "node_rank"), 0),
    "is_global_zero": True,
}
"""Attributes of `self.trainer` and of its strategy before any rank starts."""


def facts_of(source: LoaderSource, trainer: Mapping[str, Any]) -> tuple[schemas.Loaders, dict[str, Any]]:
    """Set up a user's loaders; return facts about them, and their batch size and drop_last for the plan.

    `trainer` are attributes of `self.trainer` that are known already.
    """
    owner, name = source.owner, source.choice.name
    with user_errors(f"data.{KEY}={name}", "its loaders cannot be made."):
        if owner is not None:
            owner.trainer = SimpleNamespace(**ONE_PROCESS, **trainer)
            owner.trainer.strategy = owner.trainer
            owner.prepare_data()
            seeded(source.seed, lambda: owner.setup("fit"))
        if not source.has("train"):
            raise config_error("data", name, "it has no train_dataloader", "data with one")
        train = source.loaders("train", SINGLE)[0]
        defaults = {"batch_size": train.global_batch_size, "drop_last": train.drop_last}
        facts: dict[str, Any] = {"train_samples": train.samples, "regular": train.regular}
        with suppress(TypeError, NotImplementedError):  # of unknown length
            facts["train_batches"] = len(train)
        for stage in ("val", "test"):
            if stage == "test" and owner is not None and source.has("test"):
                seeded(source.seed, lambda: owner.setup("test"))
            loaders = source.loaders(stage, SINGLE) if source.has(stage) else []
            facts[f"{stage}_size"] = sum(loader.samples or 1 for loader in loaders)
            facts[f"{stage}_batch_sizes"] = tuple(loader.global_batch_size for loader in loaders)
    return schemas.Loaders(**facts), defaults


def batch_facts(source: LoaderSource, samples: Samples) -> dict[str, Any]:
    """Return what a plain net and its task need to know of a batch, by the fields of Loaders."""
    choice: Any = source.choice
    with user_errors(f"data.{KEY}={choice.call[KEY]}", "a batch of it raises this."), preserve_generators():
        batch = next(iter(source.loaders("train", SINGLE)[0]))
    keys = keys_of(choice)
    inputs, target = pair_of(values_of_batch(batch, keys) if keys else batch, samples)
    target = targets_for_loss(target)[0]
    loaders = {stage: source.user_loaders(stage) for stage in STAGES if source.has(stage)}
    for stage, several in loaders.items():
        if len(several) > 1:
            reason = f"its {METHOD[stage]} returns {len(several)} loaders, and a plain net is measured on one"
            raise config_error("data", choice.name, reason, "a LightningModule, or one loader")
    datasets = [getattr(loader, "dataset", None) for loader, *_ in loaders.values()]
    outputs = outputs_of(choice, datasets, target, samples, getattr(source.owner, "num_classes", None))
    return sample_facts(inputs[0], target, outputs)
