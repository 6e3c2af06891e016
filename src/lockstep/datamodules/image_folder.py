"""Images in a folder for each class, ROOT/CLASS/FILE, or ROOT/train/CLASS/FILE beside val and test.

Files are read one by one, by `data.num_workers` processes.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Subset
from torchvision.datasets import DatasetFolder
from torchvision.transforms import v2

from lockstep.base.config_error import ConfigError, config_error, require
from lockstep.datamodules.datasets import Datasets
from lockstep.datamodules.tensors import STAGES, split_rows

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".gif")


class Images(DatasetFolder):  # type: ignore[misc]  # torchvision has no types
    """Images by class; hidden folders, such as .ipynb_checkpoints, are no classes."""

    def find_classes(self, directory: str | Path) -> tuple[list[str], dict[str, int]]:
        names, _ = super().find_classes(directory)
        names = [name for name in names if not name.startswith(".")]
        return names, {name: number for number, name in enumerate(names)}


class ImageFolder(Datasets):
    """Float images (3, size, size) from 0 to 1 and classes; random transforms are drawn under each sample's seed."""

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
        exists, hint = Path(root).is_dir(), "data.root=FOLDER, with a folder of images for each class"
        require(exists, "data.root", root, "there is no such path", hint)
        by_stage = {stage: transform_to(size, transforms if stage == "train" else ()) for stage in STAGES}
        datasets = find_images(root, by_stage, val_size, test_size)
        super().__init__(datasets, batch_size, loader={"num_workers": num_workers})
        self.save_hyperparameters(ignore=["transforms"], logger=False)
        self.transform = by_stage["test"]


def find_images(
    root: str, transforms: Mapping[str, Callable[[Any], Any]], val_size: float, test_size: float
) -> dict[str, Any]:
    """Return data sets by train, val and test: of ROOT/train and its like, or a division of ROOT."""
    stages = [stage for stage in STAGES if (Path(root) / stage).is_dir()]
    is_split = "train" in stages
    datasets: dict[str, Any] = {}
    for stage in stages if is_split else STAGES:
        folder = Path(root) / stage if is_split else root
        try:
            datasets[stage] = Images(folder, read_image, SUFFIXES, transforms[stage])
        except (OSError, ValueError) as error:
            raise config_error("data.root", root, str(error), "a folder of images for each class") from None
        classes, names = datasets["train"].classes, datasets[stage].classes
        reason = f"{stage} has the classes {', '.join(names)}, and train has {', '.join(classes)}"
        require(names == classes, "data.root", root, reason, "folders with the same classes")
    if is_split:
        return datasets
    rows = split_rows(len(datasets["train"]), val_size, test_size)
    return {stage: Subset(images, rows[stage]) for stage, images in datasets.items()}


def transform_to(size: int | None, augmentation: Sequence[Callable[[Any], Any]] = ()) -> Callable[[Any], Any]:
    """Return what makes a float image (3, size, size) from 0 to 1 of a picture, augmented before it is resized."""
    to_float = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    resized = [v2.Resize(size), v2.CenterCrop(size)] if size is not None else []
    return v2.Compose([*to_float, *augmentation, *resized, v2.ToPureTensor()])  # type: ignore[no-any-return]


def read_image(path: str, mode: str = "RGB") -> Image.Image:
    """Return a picture in a mode of PIL: L, which is grey, or RGB."""
    try:
        with Image.open(path) as image:
            if image.mode.startswith("I"):  # 16 bits, which `convert` would cut at 255
                return Image.fromarray((np.asarray(image) // 257).astype(np.uint8)).convert(mode)
            return image.convert(mode)
    except OSError as error:
        raise ConfigError(f"data: {path} is no image that can be read ({error}); remove it.") from None
