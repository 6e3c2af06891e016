"""What a trained net says of inputs: rows for a table, and arrays for a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.config_error import ConfigError, errors_as
from lockstep.files import atomic_write, save_table
from lockstep.inference.inputs import Samples, batches
from lockstep.inference.trained_net import Preprocessing, shapes_of
from lockstep.plan import Plan
from lockstep.targets.frames import user_traceback
from lockstep.targets.locate import UserCodeError


@dataclass(frozen=True)
class Predictions:
    """The outputs (n, …) of a net for named inputs. classes: what to call them, if the outputs are their logits."""

    names: Sequence[str]
    outputs: Tensor
    classes: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, str | float]]:
        """Return for each input the likeliest class, its probability, then all probabilities; or the outputs."""
        values = self.outputs.double().softmax(1) if self.classes else self.outputs.reshape(len(self.names), -1)
        rows = zip(self.names, values.tolist(), strict=True)
        if not self.classes:
            return [
                {"input": name, **{f"output {place}": value for place, value in enumerate(values)}}
                for name, values in rows
            ]
        labels = [*self.classes, *map(str, range(len(self.classes), self.outputs.shape[1]))]
        return [
            {"input": name, "class": labels[values.index(max(values))], "probability": max(values)}
            | {f"P({label})": value for label, value in zip(labels, values, strict=True)}
            for name, values in rows
        ]

    def save(self, path: Path) -> None:
        """Write a .csv file of the rows, or a .npz file with the arrays `inputs`, names, and `outputs`."""
        if path.suffix == ".csv":
            save_table(path, self.rows())
            return
        arrays = {"inputs": np.array(self.names), "outputs": self.outputs.numpy()}
        if self.classes:
            arrays["classes"] = np.array(self.classes)
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]


@torch.inference_mode()
def predict(plan: Plan, net: nn.Module, samples: Samples) -> Predictions:
    """Return the outputs of a net, or what a LightningModule's `predict_step` returns, for each sample."""
    names: list[str] = []
    outputs: list[Tensor] = []
    prepare = Preprocessing(plan)
    device = next((parameter.device for parameter in net.parameters()), torch.device("cpu"))
    for index, (batch_names, inputs) in enumerate(batches(samples)):
        with errors_as(partial(_refused_inputs, inputs, plan)):
            is_module = plan.model.lightning
            returned = net.predict_step(prepare(inputs).to(device), index) if is_module else net(inputs)  # type: ignore[operator]
        shape = tuple(returned.shape) if isinstance(returned, Tensor) else ()
        if shape[:1] != (len(batch_names),) or (outputs and shape[1:] != outputs[0].shape[1:]):
            raise ConfigError(
                f"RUN: its net returns {shape or type(returned).__name__} for {len(batch_names)} inputs, not a tensor "
                "with a row for each; write lockstep.load(RUN) in Python."
            )
        names += batch_names
        outputs.append(returned.float().cpu() if returned.element_size() == 2 else returned.cpu())
    has_logits = plan.objective.classes and outputs[0].dim() == 2
    return Predictions(names, torch.cat(outputs), plan.data.labels if has_logits else ())


def _refused_inputs(inputs: Tensor, plan: Plan, error: Exception) -> ConfigError:
    """Return the error of a net that does not take its inputs; with its traceback if it is likely the net's own."""
    shape, dtype = tuple(shapes_of(plan).shape), str(inputs.dtype).removeprefix("torch.")
    hint = f"{plan.data.dtype} of shape {shape}, as the run had" if shape else "inputs as the run had"
    hint += ", which predict_step gets alone" if plan.model.lightning else ""
    text = f"INPUT: the net fails for {dtype} of shape {tuple(inputs.shape[1:])}: {error}; write {hint}."
    if isinstance(error, RuntimeError):  # torch's, for shapes and types
        return ConfigError(text)
    return UserCodeError(f"{user_traceback(error, is_called=True)}\n{text}")
