"""Standard streams that cannot fail a run: what is printed to a closed pipe (`| head -1`) or a full disk is dropped."""

import io
import os
import sys
from typing import Any


class SafeFile(io.FileIO):
    """Writes nothing more after the first error."""

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except OSError:
            redirect_to_null(self.fileno())
            return len(content)


def outlive_readers() -> None:
    """Keep what this process prints to its standard streams from raising OSError or UnicodeError."""
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__") and isinstance(stream, io.TextIOWrapper):  # no test captures it
            try:
                stream.flush()
            except OSError:
                redirect_to_null(descriptor)
            os.set_blocking(descriptor, True)
            file = io.BufferedWriter(SafeFile(descriptor, "wb", closefd=False))
            setattr(sys, name, io.TextIOWrapper(file, stream.encoding, "backslashreplace", line_buffering=True))


def redirect_to_null(descriptor: int) -> None:
    """Redirect a descriptor to the null device, for C++ too."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


def notice(sentence: str) -> None:
    """Print a line on stderr about something that does not end the run."""
    print(sentence, file=sys.stderr, flush=True)
