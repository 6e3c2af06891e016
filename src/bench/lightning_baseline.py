"""Ordinary LightningModules with their dataloaders, and `stock`: an ordinary Trainer with TensorBoard that runs them.

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

from bench.workloads import BenchPayload
from lockstep.base.random_state import seed_all
from lockstep.engine import silence_warnings
from lockstep.launch.topology import RankContext
from lockstep.plan.targets.locate import create


class Module(pl.LightningModule):
    """Two layers whose loss is logged by step and by epoch; data in tensors or a sample at a time, maybe by workers."""

    def __init__(self, samples: int, tensors: bool, workers: int = 0) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
        self.samples, self.tensors, self.workers = samples, tensors, workers
        self.shape: tuple[int, ...] = (64,)
        self.batch_size, self.logged = 32, dict[str, Any](on_step=True, on_epoch=True)

    def train_dataloader(self) -> DataLoader[Any]:
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(self.samples, *self.shape, generator=generator)
        dataset: Any = TensorDataset(inputs, torch.randint(0, 10, (self.samples,), generator=generator))
        dataset = dataset if self.tensors else list(dataset)
        return DataLoader(dataset, batch_size=self.batch_size, shuffle=True, num_workers=self.workers)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss, **self.logged)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Boring(pl.LightningModule):
    """Lightning's BoringModel, on tensors: one layer, whose loss is logged by step."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 2)

    def train_dataloader(self) -> DataLoader[Any]:
        inputs = torch.randn(24000, 32, generator=torch.Generator().manual_seed(0))
        return DataLoader(TensorDataset(inputs), batch_size=8)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> dict[str, Tensor]:
        outputs = self.layer(batch[0])
        loss = F.mse_loss(outputs, torch.ones_like(outputs))
        self.log("train_loss", loss)
        return {"loss": loss}

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.layer.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)]


class MLP(Module):
    """Three layers on random inputs of MNIST's shape: mostly arithmetic."""

    def __init__(self) -> None:
        super().__init__(samples=55040, tensors=True)
        layers = (nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
        self.net = nn.Sequential(nn.Flatten(), *layers)
        self.shape, self.batch_size, self.logged = (1, 28, 28), 64, {"prog_bar": True}


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
