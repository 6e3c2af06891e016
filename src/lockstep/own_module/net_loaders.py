"""Where a plain net's batches come from beside callbacks: built-in data and Datasets as everywhere, by their splits."""

from collections.abc import Iterator
from typing import Any, Literal

from lockstep.batch_math import window_samples
from lockstep.data.loader import create_loader
from lockstep.data.tensors import Batch
from lockstep.own_module.create import LoaderSource
from lockstep.own_module.loaders import RankLoader, Share, Taken
from lockstep.precision import dtype_of
from lockstep.sampler import ShardSampler, evaluation_batch
from lockstep.session import Session


class SplitSource(LoaderSource):
    """The splits of a plain net's session, in loaders of this rank's shares."""

    def __init__(self, session: Session, module: Any) -> None:
        self.session, self.module, self.seed = session, module, session.plan.seed
        self.owner = self.made = None

    def has(self, stage: str) -> bool:
        plan = self.session.plan
        return plan.validates if stage == "val" else len(getattr(self.session.data, stage)) > 0

    def loaders(self, stage: str, share: Share) -> list[RankLoader]:
        return [SplitLoader(self.session, stage, share)]  # type: ignore[arg-type]


class SplitLoader(RankLoader):
    """The batches that plain nets get without callbacks."""

    def __init__(self, session: Session, stage: Literal["train", "val", "test"], share: Share) -> None:
        plan, split = session.plan, getattr(session.data, stage)
        super().__init__(share, plan.seed, stage == "train")
        self.plan = plan
        samples, size = len(split), plan.batch_size
        options: dict[str, Any] = {"rank": session.context.rank, "world_size": session.context.world_size}
        if stage == "train":
            options |= {"seed": plan.order_seed, "drop_last": plan.drop_last, "batches": plan.epoch_batches}
        else:
            samples, size = plan.samples_of(stage, samples), evaluation_batch(size)
        self.shards = ShardSampler(samples, size, **options)
        self.batches = create_loader(session.data, split, self.shards, session.device, dtype_of(plan))

    def __len__(self) -> int:
        return len(self.shards)

    def __iter__(self) -> Iterator[Batch]:
        self.shards.begin = self.begin if self.training else (0, 0)
        self.shards.set_epoch(self.epoch)
        for number, batch in enumerate(self.batches, start=self.first):
            self.taken.append(Taken(batch.ids, len(batch.ids), self._window(number)))
            yield batch

    def _window(self, batch: int) -> int | None:
        plan = self.plan
        if not self.training:
            return None
        sizes = plan.epoch_samples, plan.batch_size, self.accumulate
        return window_samples(*sizes, batch, plan.drop_last)
