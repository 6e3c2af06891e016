"""`python -m lockstep.predict RUN INPUT…`: what the module of a run predicts for pictures, arrays or rows, as CSV."""

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset
from torchvision.datasets.folder import IMG_EXTENSIONS as SUFFIXES

from lockstep.base.config_error import ConfigError, config_error, errors_as, require
from lockstep.base.precision import MIXED
from lockstep.command.entry_point import arguments, run_command
from lockstep.command.inference import load_with_plan
from lockstep.datamodules.csv_file import CSV
from lockstep.datamodules.image_folder import read_image
from lockstep.datamodules.npz import read_arrays
from lockstep.datamodules.tensors import SplitData
from lockstep.engine.loaders.source import create_data
from lockstep.plan.targets.kinds import overrides
from lockstep.runs.checkpoint.files import read_checkpoint

BATCH = 64
INPUTS = "a picture, a folder of them, a .npy file, or for data=csv a .csv file"


USAGE = "python -m lockstep.predict RUN INPUT…"
HELP = f"""Print what the module of a run predicts, as CSV:  {USAGE}

RUN is the folder of a run or a checkpoint, INPUT {INPUTS}.
It prints the likeliest class of each input and its probability, or the outputs. A key, typed as KEY=VALUE:

  device: cpu   or cuda, …
"""


@dataclass(frozen=True)
class Options:
    run: str
    inputs: tuple[str, ...]
    device: str = "cpu"


def show(words: Sequence[str]) -> int:
    typed = arguments(Options, words, USAGE)
    plan, module = load_with_plan(typed.run, typed.device)
    names, outputs = predict(plan, module, typed.inputs)
    classes = plan.data.class_names or tuple(map(str, range(plan.data.num_classes or 0)))
    table, rows = csv.writer(sys.stdout), outputs.reshape(len(names), -1)
    if outputs.dim() == 2 and outputs.shape[1] == len(classes):
        probabilities, indices = rows.double().softmax(1).max(1)
        table.writerow(("input", "class", "probability"))
        labels = [classes[index] for index in indices.tolist()]
        table.writerows(zip(names, labels, probabilities.tolist(), strict=True))
    else:
        table.writerow(("input", *(f"output {n}" for n in range(rows.shape[1]))))
        table.writerows((name, *row) for name, row in zip(names, rows.tolist(), strict=True))
    return 0


main = partial(run_command, show, help_page=HELP, has_ranks=False)


@torch.no_grad()
def predict(plan: Any, module: Any, inputs: Sequence[str]) -> tuple[list[str], Tensor]:
    """Return the names of inputs, and the outputs (n, …) of a module's `predict_step` for them."""
    data = module
    if plan.data.is_module:
        data = create_data(plan.data, plan.seed)
        if isinstance(data, CSV):
            data.load_state_dict(read_checkpoint(Path(str(plan.ckpt_path)), mmap=True)[CSV.__qualname__])
        data.trainer = SimpleNamespace(lightning_module=module)
    names, outputs = list[str](), list[Tensor]()
    dtype, samples = MIXED.get(plan.precision), _samples(inputs, plan, data)

    def refused(error: Exception) -> ConfigError | None:
        if not isinstance(error, RuntimeError | ValueError | TypeError):
            return None
        reason = f"the run's transform or module does not take it ({error})"
        last = inputs[-1] if not names else f"the inputs after {names[-1]}"
        return config_error("INPUT", last, reason, f"inputs of shape {plan.data.sample_shape or 'that the run had'}")

    with errors_as(refused), torch.autocast(module.device.type, dtype, enabled=dtype is not None):
        while block := [*islice(samples, BATCH)]:
            batch = _prepared(torch.stack([value for _, value in block]), data, module)
            returned = module.predict_step(batch, len(outputs))
            if not isinstance(returned, Tensor) or returned.shape[:1] != (len(block),):
                kind = f"a {type(returned).__name__}, not a tensor with a row for each input"
                raise ConfigError(f"RUN: its predict_step returns {kind}; write lockstep.load(RUN) in Python.")
            names += [name for name, _ in block]
            outputs.append(returned.float().cpu())
    require(bool(outputs), "INPUT", " ".join(inputs), "there is no picture and no row in it", "others")
    return names, torch.cat(outputs)


def _samples(inputs: Sequence[str], plan: Any, data: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the samples of files and folders, in order, each with the name of its file or row."""
    for path in map(Path, inputs):
        require(path.exists(), "INPUT", path, "there is no such file or folder", INPUTS)
        if path.suffix == ".csv":
            require(isinstance(data, CSV), "INPUT", path, "the run was not trained by data=csv", "pictures or arrays")
            yield from data.rows_to_predict(str(path))
            continue
        if path.suffix == ".npy":
            yield from ((f"{path}[{index}]", row) for index, row in enumerate(read_arrays(str(path))))
            continue
        read, files = _picture_reader(plan, data), sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in (file for file in files if file == path or file.suffix.lower() in SUFFIXES):
            yield str(file), read(str(file))


def _picture_reader(plan: Any, data: Any) -> Callable[[str], Tensor]:
    """Return what reads a picture as a sample: by the data's `transform`, or at the size of its images of bytes."""
    shape: tuple[int, ...] = plan.data.sample_shape or ()
    mode = "L" if shape[:1] == (1,) else "RGB"
    datasets = getattr(data, "datasets", {})
    dataset = datasets.get("test", datasets.get("train"))
    dataset = dataset.dataset if isinstance(dataset, Subset) else dataset
    if transform := getattr(data, "transform", None) or getattr(dataset, "transform", None):
        return lambda path: torch.as_tensor(transform(read_image(path, mode)))
    is_bytes = isinstance(dataset, TensorDataset) and dataset.tensors[0].dtype == torch.uint8
    has_bytes = isinstance(data, SplitData) and (is_bytes or not datasets)  # a built-in one, which is not set up here
    fits = has_bytes and len(shape) == 3 and shape[0] in (1, 3)
    reason = f"data={plan.data.name} has no images of bytes, and no attribute `transform`"
    require(fits, "INPUT", "a picture", reason, "a .npy file with rows as the data has them")

    def read(path: str) -> Tensor:
        pixels = np.array(read_image(path, mode).resize((shape[2], shape[1])))
        return torch.from_numpy(pixels).reshape(*shape[1:], shape[0]).permute(2, 0, 1)

    return read


def _prepared(inputs: Tensor, data: Any, module: Any) -> Any:
    """Return inputs (batch, *shape) on the device of the module, as its batches have them."""
    is_converted = isinstance(data, SplitData) or not inputs.is_floating_point()  # by its hook, if need be
    inputs = inputs.to(module.device, None if is_converted else module.dtype)
    batch: Any = [inputs, torch.zeros(len(inputs), dtype=torch.int64, device=module.device)]
    for name in ("on_before_batch_transfer", "on_after_batch_transfer"):
        owner = data if overrides(data, name) else module
        batch = getattr(owner, name)(batch, 0)
    return batch[0]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
