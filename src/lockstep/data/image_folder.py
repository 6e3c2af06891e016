"""Images in a folder for each class, ROOT/CLASS/FILE, or ROOT/train/CLASS/FILE beside val and test.

Files are read one by one, by `data.loader.num_workers` processes; random transforms are drawn under each
sample's own seed.
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

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
PARTS = ("train", "val", "test")


def image_folder(
    root: str,
    size: int | None = 64,
    transforms: Sequence[Callable[[Any], Any]] = (),
    val: float = 0.1,
    test: float = 0.1,
) -> dict[str, "Images"]:
    """Float images (3, size, size) from 0 to 1 and classes, by train, val and test.

    Args:
        size: the shorter side is made this long, and the middle cut out; None leaves sizes as they are.
        transforms: of torchvision's v2, for training alone: on a float image, before it is resized.
        val: samples, or a share below 1, where there is no folder train; the split is always the same.

    Raises:
        ConfigError: there is no folder, no class or no image, or the classes of train, val and test differ.
    """
    folder = Path(root)
    require(folder.is_dir(), "data.root", root, "there is no such folder", "one that holds a folder for each class")
    if not (folder / "train").is_dir():
        files, classes = _listed(root, folder)
        rows = split_rows(len(files), {"val": val, "test": test})
        reason = f"with data.val={val} data.test={test} nothing of its {len(files)} images is left to train on"
        require(bool(rows["train"]), "data.root", root, reason, "smaller ones")
        chosen = {name: [files[row] for row in own] for name, own in rows.items()}
    else:
        listed = {name: _listed(root, folder / name) for name in PARTS if (folder / name).is_dir()}
        classes = listed["train"][1]
        for name, (_, own) in listed.items():
            reason = f"{name} has the classes {', '.join(own)}, and train has {', '.join(classes)}"
            require(own == classes, "data.root", root, reason, "folders with the same classes")
        chosen = {name: files for name, (files, _) in listed.items()}
    return {name: Images(files, classes, size, transforms if name == "train" else ()) for name, files in chosen.items()}


def _listed(root: str, folder: Path) -> tuple[list[tuple[Path, int]], list[str]]:
    """Return every image with its class, in the order of their names; and the classes."""
    classes = sorted(own.name for own in folder.iterdir() if own.is_dir() and not own.name.startswith("."))
    require(bool(classes), "data.root", root, f"{folder} has no folders, one for each class", "one that has")
    files = []
    for number, name in enumerate(classes):
        images = [file for file in sorted((folder / name).rglob("*")) if file.suffix.lower() in ENDINGS]
        require(bool(images), "data.root", root, f"{folder / name} has no image", "folders that have, or remove it")
        files += [(file, number) for file in images]
    return files, classes


class Images(Dataset[tuple[Tensor, int]]):
    """`classes` are the folders' names, `files` paths with the numbers of their classes."""

    def __init__(
        self,
        files: Sequence[tuple[Path, int]],
        classes: Sequence[str],
        size: int | None,
        transforms: Sequence[Callable[[Any], Any]],
    ) -> None:
        self.files, self.classes = files, classes
        sized = [v2.Resize(size), v2.CenterCrop(size)] if size is not None else []
        scaled = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
        self.transform = v2.Compose([*scaled, *transforms, *sized])

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path, target = self.files[index]
        try:
            with Image.open(path) as image:
                pixels = image.convert("RGB")
        except OSError as error:
            raise ConfigError(f"data: {path} is no image that can be read ({error}); remove it.") from None
        made: Tensor = self.transform(pixels)
        return made.as_subclass(Tensor), target
