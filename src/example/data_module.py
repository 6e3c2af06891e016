"""A LightningDataModule: three splits, and a DataLoader for each."""

from lightning.pytorch import LightningDataModule
from torch import Generator, Tensor
from torch.utils.data import DataLoader, Dataset, random_split

from example.data import Rings

Loader = DataLoader[tuple[Tensor, int]]


class RingsData(LightningDataModule):
    """The Dataset of data.py. `batch_size` is that of all devices together.

    The attributes are for constructors of nets and modules that have arguments of these names.
    """

    sample_shape, num_classes, class_names = (2,), 2, Rings.classes
    train: Dataset[tuple[Tensor, int]]
    val: Dataset[tuple[Tensor, int]]
    test: Dataset[tuple[Tensor, int]]

    def __init__(self, samples: int, batch_size: int, blur: float = 0.1) -> None:
        super().__init__()
        self.samples, self.batch_size, self.blur = samples, batch_size, blur

    def setup(self, stage: str) -> None:
        rings = Rings(self.samples, self.blur)
        self.train, self.val, self.test = random_split(rings, [0.7, 0.1, 0.2], Generator().manual_seed(0))

    def train_dataloader(self) -> Loader:
        return DataLoader(self.train, self.batch_size, shuffle=True)

    def val_dataloader(self) -> Loader:
        return DataLoader(self.val, self.batch_size)

    def test_dataloader(self) -> Loader:
        return DataLoader(self.test, self.batch_size)
