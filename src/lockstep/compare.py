"""`python -m lockstep.compare RUN_A RUN_B`: show where two runs differ."""

import argparse
from pathlib import Path

from lockstep.base.files import save_text
from lockstep.base.lazy import callable_module
from lockstep.base.streams import ended_in_a_line
from lockstep.runs.compare import compare
from lockstep.runs.report import render
from lockstep.runs.report.pages import pair_page
from lockstep.runs.run_files import REPORT

callable_module(__name__, "lockstep.runs.compare.compare")  # lockstep.compare(A, B), once this is imported


def main() -> int:
    """Return 0 if the runs agree within the tolerance, 1 if they differ; exit with 2 if there is nothing to compare."""
    parser = argparse.ArgumentParser(prog="python -m lockstep.compare", description="Show where two runs differ.")
    parser.add_argument("run_a", type=Path)
    parser.add_argument("run_b", type=Path)
    parser.add_argument("--tolerance", type=float, help="instead of the expected agreement: 0 for identical bits")
    parser.add_argument("--report", type=Path, nargs="?", const=Path(REPORT), metavar="FILE", help=f"a page ({REPORT})")
    arguments = parser.parse_args()
    with ended_in_a_line():
        comparison = compare(arguments.run_a, arguments.run_b, arguments.tolerance)
        if arguments.report is not None:
            save_text(arguments.report, render(pair_page(arguments.run_a, arguments.run_b, comparison.content())))
    print(comparison.text())
    return 0 if comparison.within_tolerance else 1


if __name__ == "__main__":
    raise SystemExit(main())
