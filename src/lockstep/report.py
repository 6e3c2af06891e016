"""`python -m lockstep.report FOLDER…`: write report.html of a run or sweep, or of several runs side by side."""

import argparse
from pathlib import Path

from lockstep.base.config_error import ConfigError
from lockstep.base.files import save_text, short_path
from lockstep.base.streams import ended_in_a_line
from lockstep.runs.report import page_of, page_of_several, render
from lockstep.runs.run_files import REPORT


def main() -> None:
    """Write a page and print its path; exit with 2 if there is nothing to report."""
    parser = argparse.ArgumentParser(prog="python -m lockstep.report", description="Write a page about runs.")
    parser.add_argument(
        "folders", type=Path, nargs="+", metavar="FOLDER", help="of a run, of engine=both or of a sweep"
    )
    parser.add_argument("--out", type=Path, help=f"the file: by default FOLDER/{REPORT}, of several ./{REPORT}")
    arguments = parser.parse_args()
    [first, *others] = arguments.folders
    path = arguments.out or (Path(REPORT) if others else first / REPORT)
    with ended_in_a_line():
        page = render(page_of_several(arguments.folders) if others else page_of(first))
        try:
            save_text(path, page)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    print(short_path(path.absolute()))


if __name__ == "__main__":
    main()
