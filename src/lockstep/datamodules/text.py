"""A text by characters: sequences, and at each place the next character.

The text that comes with the package is the beginning of Shakespeare's Coriolanus.
"""

from pathlib import Path
from typing import Any

import torch

from lockstep.base.config_error import config_error, require
from lockstep.datamodules.tensors import InMemory, Split, split_rows

SHAKESPEARE = Path(__file__).with_name("shakespeare.txt")


class Text(InMemory):
    """int64 inputs and targets (n, length): consecutive characters, numbered in their order."""

    def __init__(
        self,
        batch_size: int = 64,
        file: str | None = None,
        length: int = 64,
        val_size: float = 0.1,
        test_size: float = 0.1,
    ) -> None:
        """`file`: in UTF-8; None: the text of the package. Sizes are samples, or shares below 1."""
        super().__init__(batch_size)
        self.save_hyperparameters(logger=False)
        try:
            text = Path(file or SHAKESPEARE).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = f"it is no text in UTF-8 ({error})"
            raise config_error("data.file", file, reason, "the path of a text") from None
        fits = 0 < length < len(text)
        require(fits, "data.length", length, f"the text has {len(text)} characters", "data.length=64, or a longer text")
        samples = (len(text) - 1) // length
        self.text = text[: samples * length + 1]
        self.characters = sorted({*self.text})
        self.sample_shape, self.num_outputs = (length,), len(self.characters)
        self.rows = split_rows(samples, val_size, test_size)

    def load(self) -> dict[str, Split]:
        numbers = {character: number for number, character in enumerate(self.characters)}
        tokens = torch.tensor([numbers[character] for character in self.text])
        inputs, targets = tokens[:-1].view(-1, *self.sample_shape), tokens[1:].view(-1, *self.sample_shape)
        return {name: (inputs[indices], targets[indices]) for name, indices in self.rows.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the characters in the order of their numbers, so that a checkpoint has them."""
        return {"characters": "".join(self.characters)}
