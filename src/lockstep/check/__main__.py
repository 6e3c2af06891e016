"""`python -m lockstep.check model=… data=…`: say whether N ranks compute what one does, and what is wrong if not."""

import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from lockstep.command.entry_point import exit_fast, run_command
from lockstep.launch.signals import ENDING, signal_handlers

HELP = """Whether N ranks compute what one process does:  python -m lockstep.check model=… data=… devices=2,3

Trains your module on the CPU for a few steps, as a stock Trainer runs it and as Lockstep does, and compares. The exit
status is 1 if anything is apart.

  model, data, …       as for train.py: options of conf/, and keys such as optimizer.lr=0.1;
                       a module of your own, Net in mine.py: model='{_target_: mine.Net}'
  devices: 2           numbers of ranks, such as 2,3
  strategies: ddp      of Lockstep's runs, such as ddp,fsdp
  steps: 20            optimizer steps of each run, in two epochs
"""


def show(words: Sequence[str]) -> int:
    began = time.perf_counter()
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    from lockstep.check.command import check

    with signal_handlers(interrupt):
        report = check(words)
    print(f"  {time.perf_counter() - began:.0f} s", flush=True)
    return 1 if report.is_apart else 0


def interrupt(number: int, _frame: object = None) -> NoReturn:
    """End the check, which says what it knows; signals that follow are ignored, as one may come twice."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    raise SystemExit(128 + number)


main = partial(run_command, show, help_page=HELP)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    exit_fast(status)
    raise SystemExit(status)
