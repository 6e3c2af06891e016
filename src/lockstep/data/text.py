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
    """Return int64 inputs and targets (samples, length): consecutive characters, numbered in their order.

    Args:
        file: in UTF-8; None for the text that comes with the package.

    Raises:
        ConfigError: the file cannot be read, or is too short.
    """
    require(length >= 1, "data.length", length, "it must be 1 or more", "data.length=64")
    codes = np.frombuffer(_read(file).encode("utf-32-le"), dtype=np.uint32)
    samples = (len(codes) - 1) // length
    if samples < 1:
        reason = f"{file or SHAKESPEARE.name} has {len(codes)} characters, and a sequence takes one more than that"
        raise config_error("data.length", length, reason, f"data.length={max(1, len(codes) // 100)}")
    _, tokens = np.unique(codes[: samples * length + 1], return_inverse=True)
    numbered = torch.from_numpy(tokens.astype(np.int64))
    return numbered[:-1].view(samples, length), numbered[1:].view(samples, length)


def _read(file: str | None) -> str:
    try:
        return Path(file or SHAKESPEARE).read_text(encoding="utf-8")
    except OSError as error:
        reason = f"it cannot be read ({error.strerror})"
    except UnicodeDecodeError as error:
        reason = f"it is no text in UTF-8 (byte {error.start})"
    raise config_error("data.file", file, reason, "the path of a text, or data.file=null for the one of the package")
