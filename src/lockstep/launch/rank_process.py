"""A process that we start becomes a rank's: environment, output, and an end when the command is gone."""

import multiprocessing
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from lockstep.launch.private_dir import hold_private_dir, remove_abandoned
from lockstep.launch.store import Rendezvous
from lockstep.launch.topology import RankContext


def apply_env(environment: Mapping[str, str], context: RankContext, rendezvous: Rendezvous) -> None:
    """Set the command's present environment (the fork server has that of its start) and this rank's variables."""
    os.environ.clear()
    os.environ.update({**environment, **context.variables, **rendezvous.variables})


def redirect_output(run_dir: Path, context: RankContext) -> None:
    """Send what ranks above 0 print, C++ included, to ranks/<n>.log in the run's folder."""
    if context.rank == 0:
        return
    log = run_dir / "ranks" / f"{context.rank}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    with log.open("a") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)


def exit_with_parent(folder: Path) -> None:
    """End this process when the command is gone, even by SIGKILL, and remove the command's private folder.

    Until then this process shares the lock on that folder. Its parent in the kernel's table is the fork server, which
    lives as long as its children, so a thread waits for the command.
    """
    hold_private_dir(folder)
    threading.Thread(target=_wait_for_parent, args=(folder,), daemon=True).start()


def _wait_for_parent(folder: Path) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        remove_abandoned(folder)
        os._exit(1)
