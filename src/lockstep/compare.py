"""`python -m lockstep.compare RUN_A RUN_B`: show where two runs differ."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lockstep.base.lazy import callable_module
from lockstep.command.entry_point import arguments, run_command
from lockstep.runs.compare import compare
from lockstep.runs.report import save_page
from lockstep.runs.report.pages import pair_page

callable_module(__name__, "lockstep.runs.compare.compare")  # lockstep.compare(A, B), once this is imported

USAGE = "python -m lockstep.compare RUN_A RUN_B"
HELP = f"""Show where two runs differ first, and by how much:  {USAGE}

The exit status is 1 if they differ by more than is expected, 2 if there is nothing to compare.
Keys, typed as KEY=VALUE:

  tolerance: null  a number in place of the expected agreement; 0 for identical bits
  report: null     a file for a page of both, such as report=report.html
"""


@dataclass(frozen=True)
class Options:
    run_a: str
    run_b: str
    tolerance: float | None = None
    report: str | None = None


def show(words: Sequence[str]) -> int:
    typed = arguments(Options, words, USAGE)
    comparison = compare(typed.run_a, typed.run_b, typed.tolerance)
    if typed.report is not None:
        save_page(Path(typed.report), pair_page(Path(typed.run_a), Path(typed.run_b), comparison.content()))
    print(comparison.text())
    return 0 if comparison.within_tolerance else 1


main = partial(run_command, show, help_page=HELP, has_ranks=False)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
