"""`python -m lockstep.report FOLDER…`: write report.html of a run or sweep, or of several runs side by side."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lockstep.base.files import short_path
from lockstep.command.entry_point import arguments, run_command
from lockstep.runs.report import page_of, page_of_several, save_page
from lockstep.runs.run_files import REPORT

USAGE = "python -m lockstep.report FOLDER…"
HELP = f"""Write a page about a run, an engine=both or a sweep, or about several side by side:  {USAGE}

A key, typed as KEY=VALUE:

  out: null   the file; by default FOLDER/{REPORT}, of several {REPORT}
"""


@dataclass(frozen=True)
class Options:
    folders: tuple[str, ...]
    out: str | None = None


def show(words: Sequence[str]) -> int:
    typed = arguments(Options, words, USAGE)
    [first, *others] = folders = [*map(Path, typed.folders)]
    path = Path(typed.out) if typed.out else Path(REPORT) if others else first / REPORT
    save_page(path, page_of_several(folders) if others else page_of(first))
    print(short_path(path.absolute()))
    return 0


main = partial(run_command, show, help_page=HELP, has_ranks=False)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
