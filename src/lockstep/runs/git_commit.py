"""The git commit of the user's code, which git looks for while a run is prepared."""

import re
import subprocess

COMMAND = ("git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "--untracked-files=no")
"""Writes nothing: `git describe --dirty` takes index.lock, which a user's own git may need, and a kill would leave."""
LIMIT = 2.0  # seconds: the commit of a repository that takes longer is not recorded


def git_commit() -> str:
    """Return the commit of the working directory, with `-dirty` if files that git tracks have changed since.

    It is "" if there is no git, no repository or no answer within LIMIT.
    """
    try:
        git = subprocess.run(COMMAND, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return ""
    commit = re.match("# branch.oid ([0-9a-f]{12})", git.stdout) if git.returncode == 0 else None
    return commit[1] + "-dirty" * bool(re.search("^[^#]", git.stdout, re.MULTILINE)) if commit else ""
