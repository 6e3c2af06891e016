"""Masked language modelling as people write it: the loss is the mean over the tokens that are masked."""

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

VOCABULARY, LENGTH, MASK = 7, 5, 0


def sentences(samples: int) -> Tensor:
    return torch.randint(1, VOCABULARY, (samples, LENGTH), generator=torch.Generator().manual_seed(samples))


class Sentences(pl.LightningDataModule):
    """37 in batches of 6: two ranks share the first six; the second has none of the last."""

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(TensorDataset(sentences(37)), batch_size=6, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(TensorDataset(sentences(7)), batch_size=6)


class MaskedModel(pl.LightningModule):
    """Masks 4s, so that the number differs from sentence to sentence and some have none.

    weight: whether its steps return it: `always`, `never`, `later` from the second batch on, or `negative`.
    """

    def __init__(self, weight: str = "always") -> None:
        super().__init__()
        self.weight = weight
        self.net = nn.Sequential(nn.Embedding(VOCABULARY, 6), nn.Flatten(), nn.Linear(6 * LENGTH, VOCABULARY * LENGTH))

    def mean_loss(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        masked = tokens == 4
        logits = self.net(tokens.masked_fill(masked, MASK)).view(-1, VOCABULARY, LENGTH)
        return F.cross_entropy(logits, tokens.masked_fill(~masked, -100)), masked.sum()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss, count = self.mean_loss(*batch)
        if self.weight == "never" or (self.weight == "later" and not batch_idx):
            return loss.nan_to_num()
        self.log("masked", loss.nan_to_num(), on_step=False, on_epoch=True, batch_size=int(count))
        return {"loss": loss, "weight": -count if self.weight == "negative" else count}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        loss, count = self.mean_loss(*batch)
        self.log("val_loss", loss.nan_to_num(), batch_size=int(count))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.5, momentum=0.5)
