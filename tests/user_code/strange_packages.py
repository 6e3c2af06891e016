"""What people write on top of other packages: shards of webdataset, a table of datasets, a model of transformers."""

import io
import random
import tarfile
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


def write_shards(folder: str, shards: int = 3, samples: int = 9) -> list[str]:
    """Tar files of points (4,) and their classes, where they are not there yet."""
    urls = []
    for shard in range(shards):
        path = Path(folder) / f"points-{shard:03d}.tar"
        urls.append(str(path))
        if path.exists():
            continue
        with tarfile.open(path, "w") as tar:
            for number in range(samples):
                key = shard * samples + number
                buffer = io.BytesIO()
                np.save(buffer, np.sin(np.arange(4, dtype=np.float32) * (key + 1)) + key % 3)
                for name, content in ((f"{key:04d}.npy", buffer.getvalue()), (f"{key:04d}.cls", b"%d" % (key % 3))):
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    return urls


class ShardsData(pl.LightningDataModule):
    """As in webdataset's own guide. `shuffle` draws from Python's generator, or, `by_clock`, from one of its own."""

    def __init__(self, folder: str, batch_size: int = 6, shuffle: int = 0, by_clock: bool = False) -> None:
        super().__init__()
        self.folder, self.batch_size, self.shuffle, self.by_clock = folder, batch_size, shuffle, by_clock

    def prepare_data(self) -> None:
        write_shards(self.folder)

    def _loader(self, urls: list[str], shuffle: int) -> Any:
        import webdataset as wds

        pipeline = wds.WebDataset(urls, shardshuffle=False, nodesplitter=None)
        if shuffle:
            pipeline = pipeline.shuffle(shuffle, rng=None if self.by_clock else random)
        pipeline = pipeline.decode().to_tuple("npy", "cls")
        return wds.WebLoader(pipeline, batch_size=self.batch_size)

    def train_dataloader(self) -> Any:
        return self._loader(write_shards(self.folder), self.shuffle)

    def val_dataloader(self) -> Any:
        return self._loader(write_shards(self.folder)[:1], 0)


class Points(pl.LightningModule):
    """Four numbers, three classes."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", F.cross_entropy(self.net(x), y))

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.02)


VOCABULARY, LENGTH = 20, 6


def table(samples: int = 40) -> Any:
    """A `datasets.DatasetDict` of token ids, attention masks and labels."""
    import datasets

    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(2, VOCABULARY, (samples, LENGTH), generator=generator)
    lengths = torch.randint(2, LENGTH + 1, (samples, 1), generator=generator)
    mask = (torch.arange(LENGTH) < lengths).long()
    columns = {"input_ids": (ids * mask).tolist(), "attention_mask": mask.tolist(), "labels": (ids[:, 0] % 2).tolist()}
    table = datasets.Dataset.from_dict(columns).with_format("torch")
    parts = {"train": table.select(range(30)), "validation": table.select(range(30, 35))}
    return datasets.DatasetDict({**parts, "test": table.select(range(35, samples))})


class Sentences(pl.LightningModule):
    """A tiny BERT with random weights, which computes its loss itself."""

    def __init__(self, dropout: float = 0.0, lr: float = 0.01) -> None:
        super().__init__()
        self.save_hyperparameters()
        from transformers import BertConfig, BertForSequenceClassification

        config = BertConfig(
            vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
            max_position_embeddings=LENGTH, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
        )  # fmt: skip
        self.model = BertForSequenceClassification(config)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        loss: Tensor = self.model(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        outputs = self.model(**batch)
        hits = (outputs.logits.argmax(1) == batch["labels"]).float().mean()
        self.log_dict({"val_loss": outputs.loss, "val_acc": hits})

    test_step = validation_step

    def configure_optimizers(self) -> Any:
        from transformers import get_linear_schedule_with_warmup

        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams["lr"])
        schedule = get_linear_schedule_with_warmup(optimizer, 2, int(self.trainer.estimated_stepping_batches))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
