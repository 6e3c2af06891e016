"""Tracebacks from the user's first frame on. Their text is cut, since a DataLoader's worker sends its error as text."""

import importlib
import re
import sysconfig
import traceback
from itertools import dropwhile
from os import sep
from pathlib import Path

from lockstep.base.config_error import LONGEST, ConfigError, shorten

FRAMES = re.compile(r"Traceback \(most recent call last\):\n((?:  .*\n)+)")
FRAME = re.compile(r'  File "(.*?)", line .*\n(?:(?!  File ).*\n)*')
IN_WORKER = re.compile(r"(?:.*\n)*?.*?\bCaught \S+ in (.+)\.\nOriginal (Traceback (?:.*\n?)+)")
"""torch's message for an error of a DataLoader's worker or of a replica: where it was raised, and its traceback."""

CALLERS = (str(Path(__file__).parents[2]) + sep, "<frozen ", str(importlib.__file__))
"""Files that call the user's code: Lockstep's, and those of the import system."""
STANDARD = tuple({sysconfig.get_path(name) + sep for name in ("stdlib", "platstdlib")})
INSTALLED = tuple(f"{sep}{name}{sep}" for name in ("site-packages", "dist-packages"))
LIBRARIES = (
    *("torch", "lightning", "pytorch_lightning", "lightning_fabric", "torchmetrics", "tensorboard", "numpy", "tqdm"),
    *("hydra", "omegaconf"),
)
"""Packages with frames between Lockstep's and the user's."""
HYDRA = f"{sep}site-packages{sep}hydra{sep}"
"""In the path of the frames of `instantiate`."""

OUT_OF_MEMORY = ("can't allocate memory", "cannot allocate memory", "out of memory", "unable to allocate")
"""In messages of torch on a CPU, of the system, of torch on a GPU, and of numpy."""
MEMORY_HINT = "lower batch_size, devices, or the size of the model or of the data"


class UserCodeError(ConfigError):
    """The user's code failed: its traceback from the user's first frame on, and a sentence after it."""

    def __str__(self) -> str:
        return str(self.args[0])


def user_traceback(error: BaseException, is_called: bool = False) -> str:
    """Format an error with its traceback from the user's first frame on, and with a hint if memory ran out.

    If the code `is_called` by Lockstep, it may be a library's: begin after Lockstep's frames. Without frames of the
    user's show none if the reason is known, and otherwise all.
    """
    text = "".join(traceback.format_exception(error)).rstrip()
    if inner := IN_WORKER.fullmatch(text):
        text = f"{inner[2]}\nIn {inner[1]}."
    message = "".join(traceback.format_exception_only(error)).lower()  # str(error) may raise
    no_memory = isinstance(error, MemoryError) or any(words in message for words in OUT_OF_MEMORY)
    is_first = (lambda file: not file.startswith(CALLERS) and HYDRA not in file) if is_called else is_user_file

    def cut(match: re.Match[str]) -> str:
        frames = dropwhile(lambda frame: not is_first(frame[1]), FRAME.finditer(match[1]))
        shown = "".join(frame[0] for frame in frames)
        return f"Traceback (most recent call last):\n{shown}" if shown else ""

    shown = FRAMES.sub(cut, text)
    shown = shown if is_called or no_memory or FRAMES.search(shown) else text
    return shorten(shown, LONGEST) + f"\nMemory ran out: {MEMORY_HINT}." * no_memory


def has_user_frames(error: BaseException) -> bool:
    """Whether code of the user's has raised an error, or called what has."""
    frames = traceback.extract_tb(error.__traceback__)
    is_worker = IN_WORKER.fullmatch("".join(traceback.format_exception(error)).rstrip()) is not None
    return is_worker or any(is_user_file(frame.filename) for frame in frames)


def is_user_file(file: str) -> bool:
    """Whether a file is neither Lockstep's, nor Python's, nor of a library that calls the user's code."""
    is_installed = any(folder in file for folder in INSTALLED)
    if file.startswith(CALLERS) or (file.startswith(STANDARD) and not is_installed):
        return False
    return not any(folder + name + sep in file for folder in INSTALLED for name in LIBRARIES)
