"""A LightningDataModule, with DataLoaders of its own."""

from lightning.pytorch import LightningDataModule
from torch import Generator, Tensor
from torch.utils.data import DataLoader, Dataset, random_split

from example.data import Rings

Loader = DataLoader[tuple[Tensor, int]]


class RingsData(LightningDataModule):
    """The data set of data.py in three splits. `batch_size` is that of all devices together."""

    splits: list[Dataset[tuple[Tensor, int]]]

    def __init__(self, samples: int, batch_size: int, blur: float = 0.1) -> None:
        super().__init__()
        self.samples, self.batch_size, self.blur = samples, batch_size, blur

    def setup(self, stage: str | None = None) -> None:
        rings = Rings(self.samples, self.blur)
        self.splits = [*random_split(rings, [0.7, 0.1, 0.2], Generator().manual_seed(0))]

    def train_dataloader(self) -> Loader:
        return DataLoader(self.splits[0], self.batch_size, shuffle=True)

    def val_dataloader(self) -> Loader:
        return DataLoader(self.splits[1], self.batch_size)

    def test_dataloader(self) -> Loader:
        return DataLoader(self.splits[2], self.batch_size)
