"""Standard streams that cannot fail a run: what is printed to a closed pipe or a full disk is dropped.

The reader of a pipe may go (`| head -1`), a terminal too, a file's disk may be full, and a shell may close a stream
(`>&-`): no reason to end hours of training. What matters is in the run's folder.
"""

import io
import os
import select
import sys
from pathlib import Path
from typing import TextIO

NAMES = {1: "stdout", 2: "stderr"}


def outlive_readers() -> None:
    """From here on whatever this process prints to its standard streams raises no OSError and no UnicodeError."""
    open_closed()
    for number, name in NAMES.items():
        own = getattr(sys, name)
        if own is None:  # it was closed when Python started
            setattr(sys, name, Path(os.devnull).open("w", errors="backslashreplace"))  # noqa: SIM115  # as long as the process
        elif own is getattr(sys, f"__{name}__") and isinstance(own, io.TextIOWrapper):
            setattr(sys, name, safe_stream(number, own))  # else somebody captures what is printed


def open_closed() -> None:
    """Open the null device where 0, 1 or 2 is closed: else the next file that is opened would get what is printed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
            os.set_inheritable(number, True)


def safe_stream(number: int, like: TextIO) -> TextIO:
    """A text stream on a file descriptor, with the settings of `like`, which is flushed first."""
    try:
        like.flush()
    except OSError:
        redirect_to_null(number)
    raw, unbuffered = SafeFile(number, "wb", closefd=False), getattr(like, "write_through", False)
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),
        encoding=like.encoding,
        errors="backslashreplace",
        line_buffering=getattr(like, "line_buffering", True),
        write_through=unbuffered,
    )


def redirect_to_null(number: int) -> None:
    """Make the descriptor one of the null device, for C++ too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


class SafeFile(io.FileIO):
    """Writes all, or from the first error on nothing; waits where a non-blocking pipe is full."""

    def write(self, content: object, /) -> int:
        rest = memoryview(content).cast("B")  # type: ignore[arg-type]
        size = len(rest)
        try:
            while rest:
                written = super().write(rest)
                if written is None:
                    select.select([], [self], [])
                rest = rest[written or 0 :]
        except OSError:
            redirect_to_null(self.fileno())
        return size
