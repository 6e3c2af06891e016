"""The user's own part of a traceback: from their first frame on, without what called it.

The text is cut, and not the traceback: a DataLoader's worker hands its error over as text.
"""

import importlib
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable
from os import sep
from pathlib import Path

FRAMES = re.compile(r"Traceback \(most recent call last\):\n((?:  .*\n)+)")
"""A traceback's frames, two lines or more each."""
FRAME = re.compile(r'  File "(.*?)", line .*\n(?:(?!  File ).*\n)*')
IN_WORKER = re.compile(r"(?:.*\n)*?.*?\bCaught \S+ in (.+)\.\nOriginal (Traceback (?:.*\n?)+)")
"""What torch makes of an error of a DataLoader's worker, and of a replica: where it was, and its traceback."""

OURS = (str(Path(__file__).parents[1]) + sep, "<frozen ", str(importlib.__file__))
"""Where frames lie that call the user's code: ours, and those of the import system."""
STANDARD = tuple({sysconfig.get_path(name) + sep for name in ("stdlib", "platstdlib")})
INSTALLED = tuple(f"{sep}{name}{sep}" for name in ("site-packages", "dist-packages"))
CALLERS = ("torch", "lightning", "pytorch_lightning", "lightning_fabric", "torchmetrics", "numpy", "tqdm")
"""Packages that stand between our frames and theirs."""
MODULE_CALL = f"{sep}torch{sep}nn{sep}modules{sep}module.py"
"""Three frames of it stand between a module and each one that it calls."""

OUT_OF_MEMORY = ("can't allocate memory", "cannot allocate memory", "out of memory", "unable to allocate")
"""In messages of torch on a CPU, of the system, of torch on a GPU, and of numpy."""
MEMORY_HINT = "lower batch_size, devices, or the size of the model or of the data"


def user_traceback(error: BaseException) -> str:
    """Format an error with its traceback from the user's first frame on.

    If no frame is the user's, all are shown, or none of an error that says that memory ran out.
    """
    text = "".join(traceback.format_exception(error)).rstrip()
    if inner := IN_WORKER.fullmatch(text):
        text = f"{inner[2]}\nIn {inner[1]}."
    hint = _memory_hint(error)
    return FRAMES.sub(lambda found: _cut(found, is_theirs) or (found[0] if not hint else ""), text) + hint


def called_traceback(error: BaseException) -> str:
    """The error of code that we have called, with its traceback without our frames."""
    text = "".join(traceback.format_exception(error)).rstrip()
    return FRAMES.sub(lambda found: _cut(found, lambda file: not file.startswith(OURS)), text) + _memory_hint(error)


def _memory_hint(error: BaseException) -> str:
    """Return a line that says what to lower if an allocation failed, on a CPU or a GPU, else nothing."""
    message = str(error).lower()
    failed = isinstance(error, MemoryError) or any(sign in message for sign in OUT_OF_MEMORY)
    return f"\nMemory ran out: {MEMORY_HINT}." if failed else ""


def is_theirs(file: str) -> bool:
    """Whether a file is neither ours, nor Python's, nor of a library that we call."""
    if file.startswith(OURS) or (file.startswith(STANDARD) and not any(name in file for name in INSTALLED)):
        return False
    return not file.startswith(tuple(_callers()))


def _callers() -> list[str]:
    modules = [sys.modules[name] for name in CALLERS if name in sys.modules]
    return [str(Path(module.__file__).parent) + sep for module in modules if module.__file__]


def _cut(found: re.Match[str], starts: Callable[[str], bool]) -> str:
    """The frames from the first that starts; nothing where none does."""
    frames = [(frame[1], frame[0]) for frame in FRAME.finditer(found[1])]
    first = next((number for number, (file, _) in enumerate(frames) if starts(file)), len(frames))
    shown = [text for file, text in frames[first:] if not file.endswith(MODULE_CALL)]
    return "Traceback (most recent call last):\n" + "".join(shown) if shown else ""
