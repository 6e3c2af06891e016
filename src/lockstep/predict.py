"""`python -m lockstep.predict RUN INPUT…`: what the module of a run predicts for pictures and arrays."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset
from torchvision.datasets.folder import IMG_EXTENSIONS as SUFFIXES

from lockstep.base.config_error import ConfigError, config_error, errors_as, require
from lockstep.base.files import save_table
from lockstep.base.precision import MIXED
from lockstep.base.streams import outlive_readers
from lockstep.base.text_table import rows_text, width_shown
from lockstep.command.inference import load_with_plan
from lockstep.datamodules.image_folder import read_image
from lockstep.datamodules.npz import read_arrays
from lockstep.datamodules.tensors import SplitData
from lockstep.engine.loaders.source import create_data
from lockstep.launch.disk import disk_errors_as_config_errors
from lockstep.plan.plan import Plan
from lockstep.plan.targets.kinds import overrides

BATCH = 64
SHOWN, SHOWN_COLUMNS = 20, 6  # rows and columns that are printed

Samples = Iterator[tuple[str, Tensor]]  # inputs as a Dataset has them, behind the name of a file, or of its row


@dataclass(frozen=True)
class Predictions:
    """The outputs (n, …) of a module for named inputs; the names of classes if they are logits."""

    names: Sequence[str]
    outputs: Tensor
    classes: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, str | float]]:
        """Return for each input the likeliest class, its probability, then all probabilities; or the outputs."""
        if not self.classes:
            values = self.outputs.reshape(len(self.names), -1).tolist()
            pairs = zip(self.names, values, strict=True)
            return [{"input": name, **{f"output {n}": value for n, value in enumerate(row)}} for name, row in pairs]
        rows: list[dict[str, str | float]] = []
        for name, row in zip(self.names, self.outputs.double().softmax(1).tolist(), strict=True):
            best, columns = row.index(max(row)), [f"P({label})" for label in self.classes]
            first = {"input": name, "class": self.classes[best], "probability": row[best]}
            rows.append(first | dict(zip(columns, row, strict=True)))
        return rows


def main() -> int:
    """Print the predictions, and write them to a file; return 2 if an input cannot be read."""
    outlive_readers()
    parser = argparse.ArgumentParser(prog="python -m lockstep.predict", description="Print the predictions of a net.")
    parser.add_argument("run", help="the folder of a run, or a checkpoint")
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="a picture, a folder of them, .npz or .npy")
    parser.add_argument("--output", type=Path, help="a .csv file to write")
    parser.add_argument("--device", default="cpu", help="cpu (the default), cuda, …")
    try:
        _print_predictions(**vars(parser.parse_args()))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _print_predictions(run: str, inputs: Sequence[str], output: Path | None, device: str) -> None:
    if output is not None:
        hint = "--output predictions.csv"
        require(output.suffix == ".csv", "--output", output, "it is no .csv file", hint)
        require(output.parent.is_dir(), "--output", output, "there is no such folder", hint)
    predictions = predict(*load_with_plan(run, device), inputs)
    rows = predictions.rows()
    columns = [*rows[0]][: 3 if predictions.classes else SHOWN_COLUMNS]
    shown = [{name: row[name] if isinstance(row[name], float) else str(row[name]) for name in columns} for row in rows]
    print(rows_text(shown[:SHOWN], width_shown(), left=2 if predictions.classes else 1))
    if len(rows) > SHOWN or len(rows[0]) > len(columns):
        print(f"… of {len(rows)} rows and {len(rows[0])} columns; --output FILE.csv has all")
    if output is not None:
        with disk_errors_as_config_errors(output.parent):
            save_table(output, rows)
        print(f"\n{output}")


@torch.no_grad()
def predict(plan: Plan, module: Any, inputs: Sequence[str]) -> Predictions:
    """Return what a module's `predict_step` returns for the samples of files and folders."""
    data = module
    if plan.data.is_module:
        data = create_data(plan.data, plan.seed)
        data.trainer = SimpleNamespace(lightning_module=module)
    names: list[str] = []
    outputs: list[Tensor] = []
    dtype = MIXED.get(plan.precision)
    for batch_names, batch in _batches(_samples(inputs, plan, data)):
        autocast = torch.autocast(module.device.type, dtype, enabled=dtype is not None)
        with errors_as(partial(_refused, batch_names[0], plan)), autocast:
            returned = module.predict_step(_prepared(batch, data, module), len(outputs))
        shape = tuple(returned.shape) if isinstance(returned, Tensor) else ()
        if shape[:1] != (len(batch_names),) or (outputs and shape[1:] != outputs[0].shape[1:]):
            raise ConfigError(
                f"RUN: its predict_step returns {shape or type(returned).__name__} for {len(batch_names)} inputs, not "
                "a tensor with a row for each; write lockstep.load(RUN) in Python."
            )
        names += batch_names
        outputs.append(returned.float().cpu() if returned.element_size() == 2 else returned.cpu())
    require(bool(outputs), "INPUT", " ".join(inputs), "there is no picture and no row in it", "others")
    named = plan.data.class_names or getattr(module, "class_names", None) or getattr(module, "classes", None)
    named = named if isinstance(named, list | tuple) else range(plan.data.num_classes or 0)
    classes = tuple(map(str, named))
    has_logits = outputs[0].dim() == 2 and outputs[0].shape[1] == len(classes)
    return Predictions(names, torch.cat(outputs), classes if has_logits else ())


def _samples(inputs: Sequence[str], plan: Plan, data: Any) -> Samples:
    """Yield the samples of files and folders, in order."""
    for name in inputs:
        path = Path(name)
        hint = "a picture, a folder of them, a .npz or a .npy file"
        require(path.exists(), "INPUT", name, "there is no such file or folder", hint)
        if path.suffix in (".npz", ".npy"):
            arrays = read_arrays(name)
            chosen = arrays.get("test", next(iter(arrays.values()))) if isinstance(arrays, dict) else arrays
            rows = chosen[0] if isinstance(chosen, tuple) else chosen
            yield from ((f"{name}[{index}]", row) for index, row in enumerate(rows if rows.dim() else rows[None]))
            continue
        read = _picture_reader(plan, data)
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES) if path.is_dir() else [path]
        for file in files:
            with errors_as(partial(_refused, str(file), plan)):
                sample = read(str(file))
            yield str(file), sample


def _picture_reader(plan: Plan, data: Any) -> Callable[[str], Tensor]:
    """Return what reads a picture as a sample: by the data's `transform`, or at the size of its images of bytes."""
    shape = plan.data.sample_shape or ()
    mode = "L" if shape[:1] == (1,) else "RGB"
    datasets = getattr(data, "datasets", {})
    dataset = datasets.get("test", datasets.get("train"))
    dataset = dataset.dataset if isinstance(dataset, Subset) else dataset
    if transform := getattr(data, "transform", None) or getattr(dataset, "transform", None):
        return lambda path: torch.as_tensor(transform(read_image(path, mode)))
    tensors = [each.tensors[0] if isinstance(each, TensorDataset) else None for each in datasets.values()]
    has_bytes = isinstance(data, SplitData) and all(each is not None and each.dtype == torch.uint8 for each in tensors)
    reason = f"data={plan.data.name} has no images of bytes, and no attribute `transform`"
    fits = has_bytes and len(shape) == 3 and shape[0] in (1, 3)
    require(fits, "INPUT", "a picture", reason, "a .npz file with an array x, as the data has them")

    def read(path: str) -> Tensor:
        pixels = np.array(read_image(path, mode).resize((shape[2], shape[1])))
        return torch.from_numpy(pixels).reshape(*shape[1:], shape[0]).permute(2, 0, 1)

    return read


def _batches(samples: Samples) -> Iterator[tuple[Sequence[str], Tensor]]:
    """Yield names and inputs (b, *shape) of consecutive samples of the same shape."""
    for _, same in groupby(samples, lambda sample: (sample[1].shape, sample[1].dtype)):
        while block := [*islice(same, BATCH)]:
            names, values = zip(*block, strict=True)
            yield names, torch.stack(values)


def _prepared(inputs: Tensor, data: Any, module: Any) -> Any:
    """Return inputs (batch, *shape) on the device of the module, as its batches have them."""
    inputs = inputs.to(module.device, module.dtype) if inputs.is_floating_point() else inputs.to(module.device)
    batch: Any = [inputs, torch.zeros(len(inputs), dtype=torch.int64, device=module.device)]
    for name in ("on_before_batch_transfer", "on_after_batch_transfer"):
        owner = data if overrides(data, name) else module
        batch = getattr(owner, name)(batch, 0)
    return batch[0]


def _refused(name: str, plan: Plan, error: Exception) -> ConfigError | None:
    """Return the error of a transform or a module that does not take an input; others are the user's own."""
    hint = f"one of shape {plan.data.sample_shape}, as the run had" if plan.data.sample_shape else "one as the run had"
    reason = f"the run's transform or module does not take it ({error})"
    return config_error("INPUT", name, reason, hint) if isinstance(error, RuntimeError | ValueError) else None


if __name__ == "__main__":
    raise SystemExit(main())
