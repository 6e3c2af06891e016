"""A text by characters: sequences, and at each place the next character.

The text that comes with the package is the beginning of Shakespeare's Coriolanus.
"""

from pathlib import Path

import numpy as np
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
        try:
            text = Path(file or SHAKESPEARE).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = f"it is no text in UTF-8 ({error})"
            raise config_error("data.file", file, reason, "the path of a text") from None
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        samples = (len(codes) - 1) // length if length > 0 else 0
        reason = f"it must be from 1 to {len(codes) - 1}, as {file or SHAKESPEARE.name} has {len(codes)} characters"
        require(samples > 0, "data.length", length, reason, f"data.length={max(1, len(codes) // 100)}")
        self.save_hyperparameters(logger=False)
        numbers, tokens = np.unique(codes[: samples * length + 1], return_inverse=True)
        self.characters, self.tokens = "".join(map(chr, numbers)), torch.from_numpy(tokens.astype(np.int64))
        self.sample_shape, self.num_outputs = (length,), len(numbers)
        self.rows = split_rows(samples, val_size, test_size)

    def load(self) -> dict[str, Split]:
        inputs, targets = self.tokens[:-1].view(-1, *self.sample_shape), self.tokens[1:].view(-1, *self.sample_shape)
        return {name: (inputs[indices], targets[indices]) for name, indices in self.rows.items()}
