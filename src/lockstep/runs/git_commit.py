"""The git commit of the user's code, which git looks for while a run is prepared."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

COMMAND = ("git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "--untracked-files=no")
"""Writes nothing: `git describe --dirty` takes index.lock, which a user's own git may need, and a kill would leave."""
LIMIT = 2.0  # seconds: the commit of a repository that takes longer is not recorded


@contextmanager
def git_commit() -> Iterator[Callable[[], str]]:
    """Start git in the working directory, and yield a function that returns the commit when git is done.

    The commit ends with `-dirty` if files that git tracks have changed since. It is "" if there is no git, no
    repository or no answer within LIMIT.
    """
    end = time.monotonic() + LIMIT
    none = subprocess.DEVNULL
    try:
        process = subprocess.Popen(COMMAND, stdin=none, stdout=subprocess.PIPE, stderr=none, errors="replace")
    except OSError:
        yield str
        return

    def commit() -> str:
        with suppress(subprocess.TimeoutExpired):
            text, _ = process.communicate(timeout=max(0.01, end - time.monotonic()))
            commit = re.match("# branch.oid ([0-9a-f]{12})", text) if process.returncode == 0 else None
            return commit[1] + "-dirty" * bool(re.search("^[^#]", text, re.MULTILINE)) if commit else ""
        return ""

    with process:
        try:
            yield commit
        finally:
            process.terminate()
