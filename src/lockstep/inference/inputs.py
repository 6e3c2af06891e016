"""Inputs of a trained net: read from pictures, arrays and texts, or examples of the shape that its data has."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset

from lockstep import data, schemas
from lockstep.config_error import ConfigError, config_error, errors_as, require
from lockstep.data.pictures import SUFFIXES, read_image
from lockstep.inference.trained_net import Preprocessing, shapes_of
from lockstep.loaders.loader_facts import SINGLE, facts_of
from lockstep.loaders.loader_source import create_source
from lockstep.plan import Plan
from lockstep.precision import dtype_of

BATCH = 64
IMAGE_FOLDER, TEXT = "lockstep.data.image_folder.image_folder", "lockstep.data.text.text"
ARRAYS = (".npz", ".npy")


Samples = Iterator[tuple[str, Tensor]]
"""Inputs of the net (*shape), each behind what to call it: a file, or a row of one."""


def batches(samples: Samples) -> Iterator[tuple[Sequence[str], Tensor]]:
    """Yield names and inputs (b, *shape) of consecutive samples of the same shape."""
    for _, same in groupby(samples, lambda sample: (sample[1].shape, sample[1].dtype)):
        while block := [*islice(same, BATCH)]:
            names, values = zip(*block, strict=True)
            yield names, torch.stack(values)


def read_samples(plan: Plan, net: Any, inputs: Sequence[str]) -> Samples:
    """Yield the samples of files and folders, in order."""
    read: Callable[[str], Tensor] | None = None
    for name in inputs:
        path = Path(name)
        require(path.exists(), "INPUT", name, "there is no such file or folder", "a picture, a .npz file, or a folder")
        if path.suffix in ARRAYS:
            yield from ((f"{name}[{row}]", value) for row, value in enumerate(_read_array(plan, name)))
            continue
        read = read or image_reader(plan, net)
        files = [path]
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
        require(bool(files), "INPUT", name, "there is no picture in it", "a folder of pictures")
        for file in files:
            with errors_as(partial(_not_read, file)):
                value = read(str(file))
            yield str(file), value


def _not_read(file: Path, error: Exception) -> ConfigError:
    return config_error("INPUT", file, f"the transform of the data fails ({error})", "a .npz file with an array x")


def image_reader(plan: Plan, net: Any) -> Callable[[str], Tensor]:
    """Return what reads a picture as a sample: by the transform of the data, or at the size of its images in bytes."""
    if isinstance(plan.data, schemas.UserData) and plan.data._target_ == IMAGE_FOLDER:
        from lockstep.data.image_folder import transform_to

        resized = transform_to(plan.data.arguments.get("size", 64))
        return lambda path: resized(read_image(path))
    transform, shape = _transform_of(plan), tuple(example_inputs(plan, net).shape[1:])
    mode = "L" if shape[:1] == (1,) else "RGB"
    if transform is not None:
        return lambda path: torch.as_tensor(transform(read_image(path, mode)))
    reason = f"data={plan.data.name} has no images of bytes, and its Dataset no attribute `transform`"
    fits = plan.data.dtype == "uint8" and len(shape) == 3 and shape[0] in (1, 3)
    require(fits, "INPUT", "a picture", reason, "a .npz file with an array x, as the data set has them")

    def read(path: str) -> Tensor:
        pixels = np.array(read_image(path, mode).resize((shape[2], shape[1])))
        return torch.from_numpy(pixels).reshape(*shape[1:], shape[0]).permute(2, 0, 1)

    return read


def _transform_of(plan: Plan) -> Callable[[Any], Any] | None:
    """Return the attribute `transform` or `transforms` of a user's Dataset or LightningDataModule."""
    if not isinstance(plan.data, schemas.UserData) or plan.data.is_built_in:
        return None
    from lockstep.data.user_data import create_data

    is_loaders = isinstance(plan.data, schemas.UserLoaders)
    owner: Any = create_data(plan.data, plan.seed) if is_loaders else data.load(plan.data, plan.seed, "any").test
    owner = owner.dataset if isinstance(owner, Subset) else owner
    candidates = (getattr(owner, name, None) for name in ("transform", "transforms"))
    return next((candidate for candidate in candidates if callable(candidate)), None)


def _read_array(plan: Plan, name: str) -> Tensor:
    """Return the inputs (n, *shape) of a .npz file, at x or x_test, or of a .npy file."""
    from lockstep.data.npz import npz

    arrays = npz(name)
    chosen = arrays.get("test", next(iter(arrays.values()))) if isinstance(arrays, dict) else arrays
    inputs = chosen[0] if isinstance(chosen, tuple) else chosen
    shape, expected = tuple(inputs.shape), tuple(shapes_of(plan).shape)  # images of another size may be possible
    fits = not expected or (len(shape) == 1 + len(expected) and (len(expected) != 3 or shape[1] == expected[0]))
    hint = f"an array of shape (n, {', '.join(map(str, expected)) or '…'}), as the run had"
    require(shape[:1] > (0,) and fits, "INPUT", name, f"its array has the shape {shape}", hint)
    return inputs


def example_inputs(plan: Plan, net: Any) -> Tensor:
    """Return two inputs (2, *shape) as the net, with its preprocessing if it is a plain one, takes them."""
    inputs = getattr(net, "example_input_array", None)
    if isinstance(inputs, Tensor):
        return inputs.repeat(2, *[1] * (inputs.dim() - 1))[:2]
    inputs = _inputs_as_in_data(plan, net)
    return Preprocessing(plan)(inputs) if plan.model.lightning else inputs


def _inputs_as_in_data(plan: Plan, net: Any) -> Tensor:
    """Return two inputs of the type and shape that the data has."""
    if plan.model.lightning and (isinstance(plan.data, schemas.Loaders) or not shapes_of(plan).shape):
        source = create_source(plan.data, net, plan.seed, plan.batch_size)
        facts_of(source, {})
        batch = next(iter(source.loaders("train", SINGLE)[0]))
        inputs = batch[0] if isinstance(batch, list | tuple) else batch
        reason, hint = f"its data yields a {type(inputs).__name__}", "a module with example_input_array"
        require(isinstance(inputs, Tensor), "RUN", plan.run_dir, reason, hint)
        return inputs[:2]  # type: ignore[no-any-return]
    shape, dtype = (2, *shapes_of(plan).shape), getattr(torch, plan.data.dtype)
    generator = torch.Generator().manual_seed(0)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=dtype_of(plan))
    return torch.randint(0, 256 if dtype == torch.uint8 else 2, shape, generator=generator, dtype=dtype)


def is_text_net(plan: Plan) -> bool:
    """Whether the net continues texts: it has been trained on the characters of one."""
    return isinstance(plan.data, schemas.UserData) and plan.data._target_ == TEXT and not plan.model.lightning


def continue_text(plan: Plan, net: Any, text: str, length: int) -> str:
    """Return a text with the most likely next characters."""
    from lockstep.data.text import characters

    known = characters(**plan.data.arguments)  # type: ignore[union-attr]
    unknown = sorted({character for character in text if character not in known})
    reason = f"the net knows the characters {known!r} alone"
    require(not unknown and text != "", "INPUT", text, reason, f'"{known[-8:]}", for example')
    tokens = torch.tensor([[known.index(character) for character in text]])
    for _ in range(length):
        following = net(tokens)[:, -1].argmax(1, keepdim=True)
        tokens = torch.cat([tokens, following.to(tokens.device)], 1)
    return "".join(known[token] for token in tokens[0].tolist())
