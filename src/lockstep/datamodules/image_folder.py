"""Images in a folder for each class, ROOT/CLASS/FILE, or ROOT/train/CLASS/FILE beside val and test.

Files are read one by one, by `data.num_workers` processes.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Subset
from torchvision import datasets
from torchvision.transforms import v2

from lockstep.base.config_error import ConfigError, config_error, require
from lockstep.datamodules.datasets import Datasets
from lockstep.datamodules.tensors import STAGES, split_rows


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
        folders = {stage: Path(root) / stage for stage in STAGES if (Path(root) / stage).is_dir()}
        is_split = "train" in folders
        images: dict[str, Any] = {}
        for stage, folder in (folders if is_split else dict.fromkeys(STAGES, Path(root))).items():
            images[stage] = find_images(folder, transform_to(size, transforms if stage == "train" else ()), root)
            fits, reason = images[stage].classes == images["train"].classes, f"{stage} has other classes than train"
            require(fits, "data.root", root, reason, "folders with the same classes")
        if not is_split:
            rows = split_rows(len(images["train"]), val_size, test_size)
            images = {stage: Subset(images[stage], rows[stage]) for stage in STAGES}
        super().__init__(images, batch_size, loader={"num_workers": num_workers})
        self.save_hyperparameters(ignore=["transforms"], logger=False)
        self.transform = transform_to(size)


def find_images(folder: Path, transform: Callable[[Any], Any], root: str) -> Any:
    """Return the images of a folder by class. `root` is the setting `data.root`, for errors."""
    try:
        return datasets.ImageFolder(folder, transform, loader=read_image)
    except OSError as error:
        hint = "data.root=FOLDER, with a folder of images for each class"
        raise config_error("data.root", root, str(error), hint) from None


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
