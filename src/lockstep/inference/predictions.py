"""What a trained module says of inputs: rows for a table, arrays for a file, or more of a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.config_error import ConfigError, errors_as, require
from lockstep.files import atomic_write, save_table
from lockstep.inference.inputs import Inputs, batches
from lockstep.models import LanguageModel
from lockstep.plan import Plan
from lockstep.precision import MIXED
from lockstep.targets.frames import user_traceback
from lockstep.targets.locate import UserCodeError


@dataclass(frozen=True)
class Predictions:
    """The outputs (n, …) of a module for named inputs. classes: what to call them, if the outputs are their logits."""

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
        return [
            {"input": name, "class": self.classes[values.index(max(values))], "probability": max(values)}
            | {f"P({label})": value for label, value in zip(self.classes, values, strict=True)}
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


@torch.no_grad()
def predict(plan: Plan, module: Any, files: Sequence[str]) -> Predictions:
    """Return what a module's `predict_step` returns for the samples of files and folders."""
    names: list[str] = []
    outputs: list[Tensor] = []
    inputs, dtype = Inputs(plan, module), MIXED.get(plan.precision)
    autocast = torch.autocast(module.device.type, dtype, enabled=dtype is not None)
    for index, (batch_names, batch) in enumerate(batches(inputs.read(files))):
        with errors_as(partial(_refused_inputs, batch, plan)), autocast:
            returned = module.predict_step(inputs.prepare(batch), index)
        shape = tuple(returned.shape) if isinstance(returned, Tensor) else ()
        if shape[:1] != (len(batch_names),) or (outputs and shape[1:] != outputs[0].shape[1:]):
            raise ConfigError(
                f"RUN: its predict_step returns {shape or type(returned).__name__} for {len(batch_names)} inputs, not "
                "a tensor with a row for each; write lockstep.load(RUN) in Python."
            )
        names += batch_names
        outputs.append(returned.float().cpu() if returned.element_size() == 2 else returned.cpu())
    classes = plan.data.class_names or tuple(map(str, range(plan.data.num_classes or 0)))
    has_logits = outputs[0].dim() == 2 and outputs[0].shape[1] == len(classes)
    return Predictions(names, torch.cat(outputs), classes if has_logits else ())


def _refused_inputs(inputs: Tensor, plan: Plan, error: Exception) -> ConfigError:
    """Return the error of a module that does not take its inputs; with its traceback if it is likely the module's."""
    shape, dtype = plan.data.sample_shape, str(inputs.dtype).removeprefix("torch.")
    hint = f"some of shape {shape}" if shape else "some"
    text = (
        f"INPUT: the module fails for {dtype} of shape {tuple(inputs.shape[1:])}: {error}; write {hint} as the run had."
    )
    if isinstance(error, RuntimeError):  # torch's, for shapes and types
        return ConfigError(text)
    return UserCodeError(f"{user_traceback(error, is_called=True)}\n{text}")


def characters_of(plan: Plan, module: Any) -> str:
    """Return the characters that a module continues texts with; none if it does not."""
    return getattr(Inputs(plan, module).owner, "characters", "") if isinstance(module, LanguageModel) else ""


@torch.no_grad()
def continue_text(module: Any, known: str, text: str, length: int) -> str:
    """Return a text with the most likely next characters. known: all characters, by their numbers."""
    unknown = sorted({character for character in text if character not in known})
    reason = f"the net knows the characters {known!r} alone"
    require(not unknown and text != "", "INPUT", text, reason, f'"{known[-8:]}", for example')
    tokens = torch.tensor([[known.index(character) for character in text]], device=module.device)
    for _ in range(length):
        tokens = torch.cat([tokens, module(tokens)[:, -1].argmax(1, keepdim=True)], 1)
    return "".join(known[token] for token in tokens[0].tolist())
