"""Colours for the few words that one looks for: on a terminal alone, and not with NO_COLOR."""

import os
import sys
from typing import Literal, TextIO

Colour = Literal["green", "red"]
CODES: dict[Colour, str] = {"green": "\x1b[32m", "red": "\x1b[31m"}
END = "\x1b[0m"


def painted(text: str, colour: Colour | None, stream: TextIO | None = None) -> str:
    """Each line by itself, so that whoever cuts lines leaves no colour open. `stream`: stdout, unless it is given."""
    if colour is None or not text or not shows_colours(sys.stdout if stream is None else stream):
        return text
    return "\n".join(f"{CODES[colour]}{line}{END}" if line else line for line in text.split("\n"))


def shows_colours(stream: TextIO | None) -> bool:
    """By https://no-color.org."""
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return not plain and stream is not None and not stream.closed and stream.isatty()
