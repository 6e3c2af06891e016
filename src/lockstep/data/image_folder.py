"""Images in a folder for each class, ROOT/CLASS/FILE, or ROOT/train/CLASS/FILE beside val and test.

Files are read one by one, by `data.loader.num_workers` workers; random transforms are drawn under each sample's seed.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Subset
from torchvision.datasets import DatasetFolder
from torchvision.transforms import v2

from lockstep.config_error import config_error, require
from lockstep.data.pictures import SUFFIXES, read_image
from lockstep.data.tensors import STAGES, split_rows


class Images(DatasetFolder):  # type: ignore[misc]  # torchvision has no types
    """Images by class; hidden folders, such as .ipynb_checkpoints, are no classes."""

    def find_classes(self, directory: str | Path) -> tuple[list[str], dict[str, int]]:
        names, _ = super().find_classes(directory)
        names = [name for name in names if not name.startswith(".")]
        return names, {name: number for number, name in enumerate(names)}


def image_folder(
    root: str,
    size: int | None = 64,
    transforms: Sequence[Callable[[Any], Any]] = (),
    val: float = 0.1,
    test: float = 0.1,
) -> dict[str, Any]:
    """Return data sets of float images (3, size, size) from 0 to 1 and classes, by train, val and test.

    Args:
        size: to which the shorter side is resized before the middle is cropped; None keeps sizes.
        transforms: of torchvision's v2, for training alone: on a float image, before it is resized.
        val: samples, or a fraction below 1, if there is no folder train; the split is always the same.
    """
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
    rows = split_rows(len(datasets["train"]), {"val": val, "test": test})
    return {stage: Subset(images, rows[stage]) for stage, images in datasets.items()}


def transform_to(size: int | None, augmentation: Sequence[Callable[[Any], Any]] = ()) -> Callable[[Any], Any]:
    """Return what makes a float image (3, size, size) from 0 to 1 of a picture, augmented before it is resized."""
    to_float = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    resized = [v2.Resize(size), v2.CenterCrop(size)] if size is not None else []
    return v2.Compose([*to_float, *augmentation, *resized, v2.ToPureTensor()])  # type: ignore[no-any-return]
