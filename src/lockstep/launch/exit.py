"""End a command: print the reason once for all ranks, and exit."""

import os
import sys
from typing import NoReturn

from lockstep.colour import painted
from lockstep.launch.failure import delay_exit
from lockstep.launch.private_dir import remove_private_folder
from lockstep.launch.topology import RankContext, is_rank_zero


def exit_now(status: int) -> NoReturn:
    """Exit a rank of an external launcher without the interpreter's own clean-up, at which gloo's threads may abort.

    Ranks that the command starts exit like that, too, as multiprocessing's children do.
    """
    remove_private_folder()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def print_exit_reason(reason: str, context: RankContext | None) -> None:
    """Print why the command ends, once for all its ranks."""
    print(end="", flush=True)  # a program without streams may have called `run`
    if is_rank_zero(context):
        first, colon, rest = reason.partition(": ")
        red = painted(first, "red", sys.stderr) if colon else first
        print(f"{red}{colon}{rest}", file=sys.stderr, flush=True)
    elif context is not None and context.local_rank == 0:  # of another machine, which may have failed by itself
        print(f"rank {context.rank}: {reason}", file=sys.stderr, flush=True)


def let_rank_zero_print(context: RankContext | None) -> None:
    """Let a rank that prints nothing end after the one that does."""
    if context is not None and context.local_rank > 0:
        delay_exit()
