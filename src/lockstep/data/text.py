"""A text by characters: sequences, and at each place the next character.

The text that comes with the package is the beginning of Shakespeare's Coriolanus.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lockstep.config_error import config_error, require

SHAKESPEARE = Path(__file__).with_name("shakespeare.txt")


def text(file: str | None = None, length: int = 64) -> tuple[Tensor, Tensor]:
    """Return int64 inputs and targets (samples, length): consecutive characters, numbered in their order."""
    codes = _read_codes(file)
    samples = (len(codes) - 1) // length if length > 0 else 0
    reason = f"it must be from 1 to {len(codes) - 1}, as {file or SHAKESPEARE.name} has {len(codes)} characters"
    require(samples > 0, "data.length", length, reason, f"data.length={max(1, len(codes) // 100)}")
    _, tokens = np.unique(codes[: samples * length + 1], return_inverse=True)
    numbered = torch.from_numpy(tokens.astype(np.int64))
    return numbered[:-1].view(samples, length), numbered[1:].view(samples, length)


def characters(file: str | None = None, length: int = 64) -> str:
    """Return the characters by their numbers."""
    codes = _read_codes(file)
    return "".join(map(chr, np.unique(codes[: (len(codes) - 1) // length * length + 1])))


def _read_codes(file: str | None) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint32]]":
    try:
        return np.frombuffer(Path(file or SHAKESPEARE).read_text(encoding="utf-8").encode("utf-32-le"), np.uint32)
    except (OSError, UnicodeDecodeError) as error:
        raise config_error("data.file", file, f"it is no text in UTF-8 ({error})", "the path of a text") from None
