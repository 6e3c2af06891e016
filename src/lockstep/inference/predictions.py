"""What a trained net says of inputs: rows for a table, and arrays for a file."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.config_error import ConfigError, errors_as
from lockstep.files import atomic_write, save_table
from lockstep.inference.inputs import Sample, batches
from lockstep.inference.preprocessing import Preprocessing
from lockstep.plan import Plan


@dataclass
class Predictions:
    """The outputs of a net, one for each name. classes: names of the classes, if the outputs are their logits."""

    classes: tuple[str, ...] = ()
    names: list[str] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)

    def rows(self) -> list[dict[str, str | float]]:
        """Return for each input the likeliest class, its probability, then all probabilities; or the outputs."""
        return [self._row(name, output) for name, output in zip(self.names, self.outputs, strict=True)]

    def _row(self, name: str, output: Tensor) -> dict[str, str | float]:
        if not self.classes:
            values = output.flatten().tolist()
            return {"input": name, **{f"output {place}": value for place, value in enumerate(values)}}
        probabilities = output.double().softmax(0).tolist()
        best = max(range(len(probabilities)), key=probabilities.__getitem__)
        labels = [*self.classes, *map(str, range(len(self.classes), len(probabilities)))]
        likeliest = {"input": name, "class": labels[best], "probability": probabilities[best]}
        return likeliest | {f"P({label})": value for label, value in zip(labels, probabilities, strict=True)}

    def save(self, path: Path) -> None:
        """Write a .csv file of the rows, or a .npz file with the arrays `inputs`, names, and `outputs`."""
        if path.suffix == ".csv":
            save_table(path, self.rows())
            return
        arrays = {"inputs": np.array(self.names), "outputs": torch.stack(self.outputs).float().numpy()}
        if self.classes:
            arrays["classes"] = np.array(self.classes)
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]


@torch.inference_mode()
def predict(plan: Plan, net: nn.Module, samples: Iterator[Sample]) -> Predictions:
    """Return the outputs of a net, or what a LightningModule's `predict_step` returns, for each sample."""
    predictions, prepare = Predictions(plan.data.labels if plan.objective.classes else ()), Preprocessing(plan)
    device = next((parameter.device for parameter in net.parameters()), torch.device("cpu"))
    for index, (names, inputs) in enumerate(batches(samples)):
        with errors_as(partial(_not_taken, inputs, plan)):
            is_module = plan.model.lightning
            outputs = net.predict_step(prepare(inputs).to(device), index) if is_module else net(inputs)  # type: ignore[operator]
        if not isinstance(outputs, Tensor) or outputs.shape[:1] != (len(names),):
            returned = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
            raise ConfigError(
                f"RUN: its net returns {returned} for {len(names)} inputs, not a tensor with a row for each; "
                "write lockstep.load(RUN) in Python."
            )
        predictions.names += names
        predictions.outputs += [*outputs.cpu()]
    return predictions


def _not_taken(inputs: Tensor, plan: Plan, error: Exception) -> ConfigError:
    shape = getattr(plan.data, "shape", ())
    hint = f"inputs of shape {shape}, as the run had" if shape else "inputs as the run had"
    return ConfigError(f"INPUT: the net fails for inputs of shape {tuple(inputs.shape[1:])}: {error}; write {hint}.")
