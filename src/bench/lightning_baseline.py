"""An ordinary LightningModule with its dataloader, and `stock`: an ordinary Trainer with TensorBoard that runs it.

The steps are small, so that the cost of everything around them shows.
"""

from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Timer
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bench.runs import BenchPayload
from lockstep.launch.topology import RankContext
from lockstep.lit.trainer import silence_warnings
from lockstep.random_state import seed_all
from lockstep.targets.locate import create


class Module(pl.LightningModule):
    """Two layers whose loss is logged by step and by epoch; data in tensors or a sample at a time, maybe by workers."""

    def __init__(self, samples: int, tensors: bool, workers: int = 0) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
        self.samples, self.tensors, self.workers = samples, tensors, workers

    def train_dataloader(self) -> DataLoader[Any]:
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(self.samples, 64, generator=generator)
        dataset: Any = TensorDataset(inputs, torch.randint(0, 10, (self.samples,), generator=generator))
        dataset = dataset if self.tensors else list(dataset)
        return DataLoader(dataset, batch_size=32, shuffle=True, num_workers=self.workers)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def run(payload: BenchPayload, context: RankContext) -> float:
    """Train the plan's module by Lightning's own Trainer, without checkpoints; return the seconds."""
    silence_warnings()
    plan, timer = payload.plan, Timer()
    seed_all(plan.seed)
    trainer = pl.Trainer(
        max_epochs=plan.max_epochs,
        accelerator=plan.accelerator,
        logger=TensorBoardLogger(plan.run_dir),
        log_every_n_steps=plan.log_every_n_steps,
        callbacks=[timer],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(create("model", plan.model.call))
    return timer.time_elapsed("train")
