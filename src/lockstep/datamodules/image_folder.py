"""Images in a folder for each class, ROOT/CLASS/FILE, or ROOT/train/CLASS/FILE beside val and test.

Files are read one by one, by `data.num_workers` processes.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, Subset
from torchvision.datasets import DatasetFolder
from torchvision.transforms import v2

from lockstep.config_error import config_error, require
from lockstep.datamodules.pictures import SUFFIXES, read_image
from lockstep.datamodules.tensors import EVALUATION_BATCH, STAGES, check_batch_size, check_share, split_rows


class Images(DatasetFolder):  # type: ignore[misc]  # torchvision has no types
    """Images by class; hidden folders, such as .ipynb_checkpoints, are no classes."""

    def find_classes(self, directory: str | Path) -> tuple[list[str], dict[str, int]]:
        names, _ = super().find_classes(directory)
        names = [name for name in names if not name.startswith(".")]
        return names, {name: number for number, name in enumerate(names)}


class ImageFolder(LightningDataModule):
    """Float images (3, size, size) from 0 to 1 and classes; random transforms are drawn under each sample's seed."""

    evaluation_batch = EVALUATION_BATCH

    def __init__(
        self,
        root: str,
        batch_size: int = 64,
        size: int | None = 64,
        transforms: Sequence[Callable[[Any], Any]] = (),
        val_size: float = 0.1,
        test_size: float = 0.1,
        num_workers: int = 0,
    ) -> None:
        """Find the classes and files.

        Args:
            size: to which the shorter side is resized before the middle is cropped; None keeps sizes.
            transforms: of torchvision's v2, for training alone: on a float image, before it is resized.
            val_size: samples, or a share below 1, if there is no folder train; the split is always the same.
            num_workers: processes that read files.
        """
        super().__init__()
        exists, hint = Path(root).is_dir(), "data.root=FOLDER, with a folder of images for each class"
        require(exists, "data.root", root, "there is no such path", hint)
        check_batch_size(batch_size)
        check_share("val_size", val_size)
        check_share("test_size", test_size)
        self.save_hyperparameters(ignore=["transforms"], logger=False)
        self.root, self.batch_size, self.num_workers = root, batch_size, num_workers
        self.transform = transform_to(size)
        self.datasets = find_images(root, size, transforms, {"val": val_size, "test": test_size})
        self.class_names = classes_of(self.datasets["train"])
        self.num_classes = self.num_outputs = len(self.class_names)
        self.sample_shape = tuple(self.datasets["train"][0][0].shape)

    def loader(self, stage: str) -> Any:
        if not len(self.datasets.get(stage, ())):
            return []
        dataset, workers = self.datasets[stage], self.num_workers
        return DataLoader(dataset, batch_size=self.batch_size, shuffle=stage == "train", num_workers=workers)

    def train_dataloader(self) -> Any:
        return self.loader("train")

    def val_dataloader(self) -> Any:
        return self.loader("val")

    def test_dataloader(self) -> Any:
        return self.loader("test")

    def predict_dataloader(self) -> Any:
        return self.test_dataloader()

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Convert images to the dtype of the module."""
        images, classes = batch
        return [images.to(self.trainer.lightning_module.dtype) if self.trainer is not None else images, classes]


def find_images(
    root: str, size: int | None, transforms: Sequence[Callable[[Any], Any]], sizes: Mapping[str, float]
) -> dict[str, Any]:
    """Return data sets by train, val and test: of ROOT/train and its like, or a division of ROOT."""
    stages = [stage for stage in STAGES if (Path(root) / stage).is_dir()]
    is_split = "train" in stages
    datasets: dict[str, Any] = {}
    for stage in stages if is_split else STAGES:
        transform = transform_to(size, transforms if stage == "train" else ())
        folder = Path(root) / stage if is_split else root
        try:
            datasets[stage] = Images(folder, read_image, SUFFIXES, transform)
        except (OSError, ValueError) as error:
            raise config_error("data.root", root, str(error), "a folder of images for each class") from None
    if is_split:
        for stage, images in datasets.items():
            classes = datasets["train"].classes
            reason = f"{stage} has the classes {', '.join(images.classes)}, and train has {', '.join(classes)}"
            require(images.classes == classes, "data.root", root, reason, "folders with the same classes")
        return datasets
    rows = split_rows(len(datasets["train"]), sizes)
    require(len(rows["train"]) > 0, "data.val_size", sizes["val"], "it leaves nothing to train on", "less")
    return {stage: Subset(images, rows[stage]) for stage, images in datasets.items()}


def classes_of(dataset: Any) -> tuple[str, ...]:
    images: Any = dataset.dataset if isinstance(dataset, Subset) else dataset
    return tuple(images.classes)


def transform_to(size: int | None, augmentation: Sequence[Callable[[Any], Any]] = ()) -> Callable[[Any], Any]:
    """Return what makes a float image (3, size, size) from 0 to 1 of a picture, augmented before it is resized."""
    to_float = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    resized = [v2.Resize(size), v2.CenterCrop(size)] if size is not None else []
    return v2.Compose([*to_float, *augmentation, *resized, v2.ToPureTensor()])  # type: ignore[no-any-return]
