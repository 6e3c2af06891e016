"""Built-in data and Datasets for a plain net, in loaders of this rank's share: in blocks where data is in memory."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch

from lockstep.data.loader import create_loader
from lockstep.data.samples import SampleData
from lockstep.data.tensors import Batch, TensorData
from lockstep.loaders.rank_loader import BatchShare, RankLoader, RankSlice
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.sampler import ShardSampler, evaluation_batch


class SplitSource:
    """The three splits of a data set in place of a user's loaders."""

    owner = None
    is_data_module = False

    def __init__(self, plan: Plan, data: TensorData | SampleData, device: torch.device) -> None:
        self.plan, self.data, self.device = plan, data, device

    def seed_setup(self) -> None:
        """No-op: the data is loaded."""

    def require_samples(self, stage: str, loaders: Sequence[RankLoader], ranks: int) -> None:
        """No-op: the steps of a task call no collectives."""

    def has(self, stage: str) -> bool:
        return self.plan.steps.validates if stage == "val" else len(getattr(self.data, stage)) > 0

    def loaders(self, stage: str, rank_slice: RankSlice) -> list[RankLoader]:
        return [SplitLoader(self.plan, self.data, stage, rank_slice, self.device)]  # type: ignore[arg-type]


class SplitLoader(RankLoader):
    """This rank's share of every global batch of a split, on its device. In a ragged batch it may be empty."""

    def __init__(
        self,
        plan: Plan,
        data: TensorData | SampleData,
        stage: Literal["train", "val", "test"],
        rank_slice: RankSlice,
        device: torch.device,
    ) -> None:
        super().__init__(rank_slice, plan.seed, stage == "train")
        self.plan, split = plan, getattr(data, stage)
        self.samples, self.batch_size = len(split), plan.batch_size
        options: dict[str, Any] = {"rank": rank_slice.rank, "world_size": rank_slice.world_size}
        if self.training:
            options |= {"seed": plan.order_seed, "drop_last": plan.drop_last, "batches": plan.steps.epoch_batches}
        else:
            self.samples = plan.steps.samples_of(stage, self.samples)  # type: ignore[arg-type]
            self.batch_size = evaluation_batch(plan.batch_size)
        self.shards = ShardSampler(self.samples, self.batch_size, **options)
        self.loader = create_loader(data, split, self.shards, device, dtype_of(plan))

    def __len__(self) -> int:
        return len(self.shards)

    def __iter__(self) -> Iterator[Batch]:
        self.shards.begin = self.begin if self.training else (0, 0)
        self.shards.set_epoch(self.epoch)
        for number, batch in enumerate(self.loader, start=self.first):
            samples = min(self.batch_size, self.samples - number * self.batch_size)
            step_samples = self.plan.steps.samples_in_step(self.epoch, number) if self.training else None
            self.shares.append(BatchShare(batch.ids, samples, step_samples))
            yield batch
