"""Tracebacks of errors in the user's code, from the user's first frame on.

The text is cut, and not the traceback, since a DataLoader's worker sends its error as text.
"""

import importlib
import re
import sysconfig
import traceback
from collections.abc import Callable
from os import sep
from pathlib import Path

from lockstep.base.config_error import LONGEST, shorten

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


def user_traceback(error: BaseException, is_called: bool = False) -> str:
    """Format an error with its traceback from the user's first frame on, and with a hint if memory ran out.

    If the code `is_called` by Lockstep, it may be a library's: begin after Lockstep's frames.
    """
    text = "".join(traceback.format_exception(error)).rstrip()
    if inner := IN_WORKER.fullmatch(text):
        text = f"{inner[2]}\nIn {inner[1]}."
    message = "".join(traceback.format_exception_only(error)).lower()  # str(error) may raise
    no_memory = isinstance(error, MemoryError) or any(words in message for words in OUT_OF_MEMORY)
    is_first = (lambda file: not file.startswith(CALLERS) and HYDRA not in file) if is_called else is_user_file
    text = shorten(cut_frames(text, is_first, is_explained=is_called or no_memory), LONGEST)
    return text + f"\nMemory ran out: {MEMORY_HINT}." * no_memory


def cut_frames(text: str, is_first: Callable[[str], bool], is_explained: bool) -> str:
    """Cut the frames before the first of the user's in each traceback of a text, and all in one without any.

    is_explained: whether the text needs no frames. Otherwise all are shown if none of them are the user's.
    """

    def cut(match: re.Match[str]) -> str:
        frames = [(frame[1], frame[0]) for frame in FRAME.finditer(match[1])]
        first = next((number for number, (file, _) in enumerate(frames) if is_first(file)), len(frames))
        shown = "".join(text for _, text in frames[first:])
        return f"Traceback (most recent call last):\n{shown}" if shown else ""

    shown = FRAMES.sub(cut, text)
    return shown if is_explained or FRAMES.search(shown) else text


def has_user_frames(error: BaseException) -> bool:
    """Whether code of the user's has raised an error, or called what has."""
    frames = traceback.extract_tb(error.__traceback__)
    is_worker = IN_WORKER.fullmatch("".join(traceback.format_exception(error)).rstrip()) is not None
    return is_worker or any(is_user_file(frame.filename) for frame in frames)


def is_user_file(file: str) -> bool:
    """Whether a file is neither Lockstep's, nor Python's, nor of a library that calls the user's code."""
    if file.startswith(CALLERS) or is_standard(file):
        return False
    return not any(folder + name + sep in file for folder in INSTALLED for name in LIBRARIES)


def is_standard(file: str) -> bool:
    """Whether a file is of Python's standard library."""
    return file.startswith(STANDARD) and not any(name in file for name in INSTALLED)
