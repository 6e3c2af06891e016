"""Inputs of a trained module: read from pictures, arrays and texts, or from its data, and prepared as in its run."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from lockstep.config_error import ConfigError, config_error, errors_as, require
from lockstep.datamodules.image_folder import SUFFIXES, read_image
from lockstep.datamodules.npz import read_arrays
from lockstep.datamodules.tensors import SplitData
from lockstep.loaders.loader_facts import SINGLE, set_up
from lockstep.loaders.loader_source import create_data, create_source
from lockstep.plan import Plan
from lockstep.targets.kinds import overrides

BATCH = 64
ARRAYS = (".npz", ".npy")

Samples = Iterator[tuple[str, Tensor]]
"""Inputs (*shape) as a Dataset has them, each behind what to call it: a file, or a row of one."""


class Inputs:
    """What a run's data module, or the module itself, knows of inputs."""

    def __init__(self, plan: Plan, module: Any) -> None:
        self.plan, self.module = plan, module
        self.owner = create_data(plan.data, plan.seed) if plan.data.is_module else module
        if plan.data.is_module:
            self.owner.trainer = SimpleNamespace(lightning_module=module)

    def prepare(self, inputs: Tensor) -> Any:
        """Return inputs (batch, *shape) on the device of the module, as its batches have them."""
        inputs = inputs.to(self.module.dtype) if inputs.is_floating_point() else inputs
        batch: Any = [inputs, torch.zeros(len(inputs), dtype=torch.int64)]
        owners = (self.owner, self.module)
        for name in ("on_before_batch_transfer", "on_after_batch_transfer"):
            if hooks := [getattr(owner, name) for owner in owners if overrides(owner, name)]:
                batch = hooks[0](batch, 0)
            if name.startswith("on_before"):
                batch = self.module.transfer_batch_to_device(batch, self.module.device, 0)
        return batch[0]

    def read(self, names: Sequence[str]) -> Samples:
        """Yield the samples of files and folders, in order."""
        read: Callable[[str], Tensor] | None = None
        for name in names:
            path, hint = Path(name), "a picture, a .npz file, or a folder"
            require(path.exists(), "INPUT", name, "there is no such file or folder", hint)
            if path.suffix in ARRAYS:
                yield from ((f"{name}[{row}]", value) for row, value in enumerate(self._array(name)))
                continue
            read = read or self.image_reader()
            is_folder = path.is_dir()
            files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES) if is_folder else [path]
            require(bool(files), "INPUT", name, "there is no picture in it", "a folder of pictures")
            for file in files:
                with errors_as(partial(_not_read, file)):
                    value = read(str(file))
                yield str(file), value

    def image_reader(self) -> Callable[[str], Tensor]:
        """Return what reads a picture as a sample: by the transform of the data, or at the size of its images."""
        shape = self.plan.data.sample_shape or ()
        mode, transform = "L" if shape[:1] == (1,) else "RGB", self._transform()
        if transform is not None:
            return lambda path: torch.as_tensor(transform(read_image(path, mode)))
        has_bytes = isinstance(self.owner, SplitData) and all(map(_has_bytes, self.owner.datasets.values()))
        reason = f"data={self.plan.data.name} has no images of bytes, and no attribute `transform`"
        fits = has_bytes and len(shape) == 3 and shape[0] in (1, 3)
        require(fits, "INPUT", "a picture", reason, "a .npz file with an array x, as the data has them")

        def read(path: str) -> Tensor:
            pixels = np.array(read_image(path, mode).resize((shape[2], shape[1])))
            return torch.from_numpy(pixels).reshape(*shape[1:], shape[0]).permute(2, 0, 1)

        return read

    def _transform(self) -> Callable[[Any], Any] | None:
        """Return the attribute `transform` or `transforms` of the data module, or of its Dataset."""
        datasets = getattr(self.owner, "datasets", {})
        owners = [self.owner, datasets.get("test", datasets.get("train"))]
        owners = [owner.dataset if isinstance(owner, Subset) else owner for owner in owners]
        found = (getattr(owner, name, None) for owner in owners for name in ("transform", "transforms"))
        return next((each for each in found if callable(each)), None)

    def _array(self, name: str) -> Tensor:
        """Return the inputs (n, *shape) of a .npz file, at x or x_test, or of a .npy file."""
        arrays = read_arrays(name)
        chosen = arrays.get("test", next(iter(arrays.values()))) if isinstance(arrays, dict) else arrays
        inputs = chosen[0] if isinstance(chosen, tuple) else chosen
        shape, expected = tuple(inputs.shape), self.plan.data.sample_shape  # images of another size may be possible
        fits = not expected or (len(shape) == 1 + len(expected) and (len(expected) != 3 or shape[1] == expected[0]))
        hint = f"an array of shape (n, {', '.join(map(str, expected or '…'))}), as the run had"
        require(shape[:1] > (0,) and fits, "INPUT", name, f"its array has the shape {shape}", hint)
        return inputs


def _has_bytes(dataset: Any) -> bool:
    return isinstance(dataset, TensorDataset) and dataset.tensors[0].dtype == torch.uint8


def _not_read(file: Path, error: Exception) -> ConfigError:
    return config_error("INPUT", file, f"the transform of the data fails ({error})", "a .npz file with an array x")


def batches(samples: Samples) -> Iterator[tuple[Sequence[str], Tensor]]:
    """Yield names and inputs (b, *shape) of consecutive samples of the same shape."""
    for _, same in groupby(samples, lambda sample: (sample[1].shape, sample[1].dtype)):
        while block := [*islice(same, BATCH)]:
            names, values = zip(*block, strict=True)
            yield names, torch.stack(values)


def example_inputs(plan: Plan, module: Any) -> Tensor:
    """Return two inputs (2, *shape) as a module takes them: of its example, or of the first batch of its data."""
    example = module.example_input_array
    if isinstance(example, Tensor):
        return example.repeat(2, *[1] * (example.dim() - 1))[:2]
    inputs = Inputs(plan, module)
    source = create_source(plan.data, module, plan.seed, plan.batch_size)
    set_up(source.owner, plan.data, plan.seed, SimpleNamespace(lightning_module=module))
    batch = next(iter(source.loaders("train", SINGLE)[0]))
    first = batch[0] if isinstance(batch, list | tuple) else batch
    reason, hint = f"its data yields a {type(first).__name__}", "a module with example_input_array"
    require(isinstance(first, Tensor), "RUN", plan.run_dir, reason, hint)
    first = torch.cat([first, first])[:2]
    return inputs.prepare(first)  # type: ignore[no-any-return]
