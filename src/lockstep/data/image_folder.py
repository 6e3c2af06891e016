"""Images in a folder for each class, ROOT/CLASS/FILE, or ROOT/train/CLASS/FILE beside val and test.

Files are read one by one, by `data.loader.num_workers` workers; random transforms are drawn under each sample's seed.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import v2

from lockstep.config_error import ConfigError, require
from lockstep.data.tensors import split_rows

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
STAGES = ("train", "val", "test")


class Images(Dataset[tuple[Tensor, int]]):
    """Image files with the numbers of their `classes`."""

    def __init__(self, files: Sequence[tuple[Path, int]], classes: Sequence[str], transform: v2.Compose) -> None:
        self.files, self.classes, self.transform = files, classes, transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path, target = self.files[index]
        try:
            with Image.open(path) as image:
                pixels = image.convert("RGB")
        except OSError as error:
            raise ConfigError(f"data: {path} is no image that can be read ({error}); remove it.") from None
        transformed: Tensor = self.transform(pixels)
        return transformed.as_subclass(Tensor), target


def image_folder(
    root: str,
    size: int | None = 64,
    transforms: Sequence[Callable[[Any], Any]] = (),
    val: float = 0.1,
    test: float = 0.1,
) -> dict[str, Images]:
    """Return float images (3, size, size) from 0 to 1 and classes, by train, val and test.

    Args:
        size: to which the shorter side is resized before the middle is cropped; None keeps sizes.
        transforms: of torchvision's v2, for training alone: on a float image, before it is resized.
        val: samples, or a fraction below 1, if there is no folder train; the split is always the same.

    Raises:
        ConfigError: there is no folder, no class or no image, or the classes of train, val and test differ.
    """
    folder = Path(root)
    require(folder.is_dir(), "data.root", root, "there is no such folder", "one that holds a folder for each class")
    if (folder / "train").is_dir():
        listed = {stage: _listed(root, folder / stage) for stage in STAGES if (folder / stage).is_dir()}
        classes = listed["train"][1]
        for stage, (_, others) in listed.items():
            reason = f"{stage} has the classes {', '.join(others)}, and train has {', '.join(classes)}"
            require(others == classes, "data.root", root, reason, "folders with the same classes")
        files = {stage: images for stage, (images, _) in listed.items()}
    else:
        images, classes = _listed(root, folder)
        rows = split_rows(len(images), {"val": val, "test": test})
        files = {stage: [images[row] for row in rows[stage]] for stage in STAGES}
    to_float = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    resized = [v2.Resize(size), v2.CenterCrop(size)] if size is not None else []
    augmented = {"train": v2.Compose([*to_float, *transforms, *resized])}
    plain = v2.Compose([*to_float, *resized])
    return {stage: Images(files[stage], classes, augmented.get(stage, plain)) for stage in files}


def _listed(root: str, folder: Path) -> tuple[list[tuple[Path, int]], list[str]]:
    """Return every image with the number of its class, in the order of their names; and the classes."""
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    require(bool(classes), "data.root", root, f"{folder} has no folders, one for each class", "one that has")
    files = []
    for number, name in enumerate(classes):
        images = [file for file in sorted((folder / name).rglob("*")) if file.suffix.lower() in SUFFIXES]
        require(bool(images), "data.root", root, f"{folder / name} has no image", "folders that have, or remove it")
        files += [(file, number) for file in images]
    return files, classes
