"""The command as the user typed it, for messages that say what to write."""

import sys
from pathlib import Path

SCRIPT, INSTALLED = "python train.py", "lockstep"


def typed_command() -> str:
    """`lockstep` for the command of an installed package, `python -m lockstep`, or `python train.py`."""
    program = Path(sys.argv[0] if sys.argv else "")
    if program.name == "__main__.py" and program.parent.name == "lockstep":
        return f"python -m {INSTALLED}"
    return INSTALLED if program.name == INSTALLED else SCRIPT
