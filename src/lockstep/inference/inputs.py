"""Inputs of a trained net from files: pictures, arrays, and texts for nets that model language."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset

from lockstep import data, schemas
from lockstep.config_error import config_error, require
from lockstep.data.tensors import Split
from lockstep.inference.trained_net import shapes_of
from lockstep.plan import Plan
from lockstep.schemas.target import BuiltIn

BATCH = 64
IMAGE_FOLDER, TEXT = "lockstep.data.image_folder.image_folder", "lockstep.data.text.text"
ARRAYS = (".npz", ".npy")


@dataclass(frozen=True)
class Sample:
    """An input of the net (*shape), and what to call it: a file, or a row of one."""

    name: str
    value: Tensor


def batches(samples: Iterator[Sample]) -> Iterator[tuple[list[str], Tensor]]:
    """Yield names and inputs (b, *shape) of consecutive samples of the same shape."""
    for _, same in groupby(samples, lambda sample: (sample.value.shape, sample.value.dtype)):
        while block := [*islice(same, BATCH)]:
            yield [sample.name for sample in block], torch.stack([sample.value for sample in block])


def read_samples(plan: Plan, inputs: Sequence[str]) -> Iterator[Sample]:
    """Yield the samples of files and folders, in order.

    Raises:
        ConfigError: a file is missing, or is none that the net of the plan takes.
    """
    read_image: Callable[[str], Tensor] | None = None
    for name in inputs:
        path = Path(name)
        require(path.exists(), "INPUT", name, "there is no such file or folder", "a picture, a .npz file, or a folder")
        if path.suffix in ARRAYS:
            yield from (Sample(f"{name}[{row}]", value) for row, value in enumerate(_read_array(name)))
            continue
        read_image = read_image or image_reader(plan)
        files = _pictures(path) if path.is_dir() else [path]
        require(bool(files), "INPUT", name, "there is no picture in it", "a folder of pictures")
        yield from (Sample(str(file), read_image(str(file))) for file in files)


def image_reader(plan: Plan) -> Callable[[str], Tensor]:
    """Return what reads a picture as a sample: by the transform of the data, or at the size of its images in bytes."""
    from lockstep.data.image_folder import read_image, transform_to

    if isinstance(plan.data, schemas.UserData) and plan.data._target_ == IMAGE_FOLDER:
        resized = transform_to(plan.data.arguments.get("size", 64))
        return lambda path: resized(read_image(path))
    transform, shape = _transform_of(plan), tuple(shapes_of(plan).shape)
    if transform is not None:
        return lambda path: torch.as_tensor(transform(read_image(path)))
    reason = f"data={plan.data.name} has no images of bytes, and its Dataset no attribute `transform`"
    fits = len(shape) == 3 and shape[0] in (1, 3) and _has_bytes(plan)
    require(fits, "INPUT", "a picture", reason, "a .npz file with an array x, as the data set has them")
    mode, size = "L" if shape[0] == 1 else "RGB", (shape[2], shape[1])

    def read(path: str) -> Tensor:
        pixels = np.array(read_image(path, mode).resize(size))
        return torch.from_numpy(pixels).reshape(*shape[1:], shape[0]).permute(2, 0, 1)

    return read


def continue_text(plan: Plan, net: Any, text: str, length: int) -> str:
    """Return a text with the most likely next characters."""
    known = _characters(plan)
    unknown = sorted({character for character in text if character not in known})
    reason = f"the net knows the characters {known!r} alone"
    require(not unknown and text != "", "INPUT", text, reason, f'"{known[-8:]}", for example')
    tokens = torch.tensor([[known.index(character) for character in text]])
    for _ in range(length):
        following = net(tokens)[:, -1].argmax(1, keepdim=True)
        tokens = torch.cat([tokens, following.to(tokens.device)], 1)
    return "".join(known[token] for token in tokens[0].tolist())


def is_text_net(plan: Plan) -> bool:
    """Whether the net continues texts: it has been trained on the characters of one."""
    return isinstance(plan.data, schemas.UserData) and plan.data._target_ == TEXT and not plan.model.lightning


def _characters(plan: Plan) -> str:
    from lockstep.data.text import characters

    return characters(**plan.data.arguments)  # type: ignore[union-attr]


def _read_array(name: str) -> Tensor:
    """Return the inputs (n, *shape) of a .npz file, at x or x_test, or of a .npy file."""
    from lockstep.data.npz import npz

    if name.endswith(".npy"):
        try:
            return torch.from_numpy(np.load(name))
        except (OSError, ValueError, TypeError) as error:
            raise config_error("INPUT", name, f"it is no array of numbers ({error})", "another file") from None
    arrays = npz(name)
    chosen = arrays.get("test", next(iter(arrays.values()))) if isinstance(arrays, dict) else arrays
    return chosen[0] if isinstance(chosen, tuple) else chosen


def _transform_of(plan: Plan) -> Callable[[Any], Any] | None:
    """Return the attribute `transform` or `transforms` of a user's Dataset or LightningDataModule."""
    if not isinstance(plan.data, schemas.UserData):
        return None
    from lockstep.data.user_data import create_data

    created: Any = create_data(plan.data, plan.seed)
    if not isinstance(plan.data, schemas.UserLoaders):
        test = data.load(plan.data, plan.seed, plan.task.samples).test
        created = test.dataset if isinstance(test, Subset) else test
    candidates = (getattr(created, name, None) for name in ("transform", "transforms"))
    return next((candidate for candidate in candidates if callable(candidate)), None)


def _has_bytes(plan: Plan) -> bool:
    if isinstance(plan.data, BuiltIn):
        return isinstance(plan.data, schemas.MNIST | schemas.Digits)
    splits = None if isinstance(plan.data, schemas.Loaders) else data.load(plan.data, plan.seed, plan.task.samples)
    return splits is not None and isinstance(splits.train, Split) and splits.train.is_images


def _pictures(folder: Path) -> list[Path]:
    from torchvision.datasets.folder import IMG_EXTENSIONS

    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in (*IMG_EXTENSIONS, ".gif"))
