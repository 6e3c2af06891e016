"""Colours for the few words that one looks for: on a terminal alone, and not with NO_COLOR."""

import os
import sys
from typing import Literal, TextIO

Colour = Literal["green", "red"]
CODES: dict[Colour, str] = {"green": "\x1b[32m", "red": "\x1b[31m"}
END = "\x1b[0m"


def painted(text: str, colour: Colour | None, stream: TextIO | None = None) -> str:
    """Each line by itself, so that whoever cuts lines leaves no colour open. `stream`: stdout, unless it is given.

    By https://no-color.org.
    """
    stream, plain = stream or sys.stdout, os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if colour is None or plain or stream is None or stream.closed or not stream.isatty():
        return text
    return "\n".join(f"{CODES[colour]}{line}{END}" if line else line for line in text.split("\n"))
