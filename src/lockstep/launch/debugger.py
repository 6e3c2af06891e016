"""Whether a debugger runs this process, and whether it waits at its prompt."""

import inspect
from types import FrameType

PROMPT = "cmdloop"
"""The function in which pdb and IPython wait at their prompts."""
DEBUGGERS = ("bdb", "debugpy", "pydevd", "_pydevd_bundle")
"""Packages that call the program which they debug: pdb's, and those of IDEs."""


def at_prompt(frame: FrameType | None) -> bool:
    """Whether the frame, or one of its callers, is a debugger's prompt."""
    while frame is not None and frame.f_code.co_name != PROMPT:
        frame = frame.f_back
    return frame is not None


def is_debugged() -> bool:
    """Whether the program was started by a debugger, which stops at uncaught errors."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] not in DEBUGGERS:
        frame = frame.f_back
    return frame is not None
