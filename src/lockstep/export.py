"""`python -m lockstep.export RUN --format FORMAT`: write the module of a run for other programs, and check the file."""

import argparse
import sys
from pathlib import Path

from lockstep.config_error import ConfigError, require
from lockstep.disk import disk_errors_as_config_errors
from lockstep.files import short_path
from lockstep.run_files import EXPORTED
from lockstep.streams import outlive_readers


def main() -> int:
    """Write the file and print its path; return 2 if the net cannot be exported."""
    outlive_readers()
    parser = argparse.ArgumentParser(prog="python -m lockstep.export", description="Write a trained module to a file.")
    parser.add_argument("run", help="the folder of a run, or a checkpoint")
    parser.add_argument("--format", choices=EXPORTED, default="safetensors", help="of the file (safetensors)")
    parser.add_argument("--output", type=Path, help="the file to write (net.… in the folder of the run)")
    typed = parser.parse_args()
    try:
        if typed.output is not None:
            name = EXPORTED[typed.format]
            reason, hint = f"a file of the format {typed.format} ends in {Path(name).suffix}", f"--output {name}"
            require(typed.output.suffix == Path(name).suffix, "--output", typed.output, reason, hint)
            require(typed.output.parent.is_dir(), "--output", typed.output, "there is no such folder", hint)
        from lockstep.inference.export import export  # with torch

        with disk_errors_as_config_errors(typed.output or typed.run):
            path, checked = export(typed.run, typed.format, typed.output)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{short_path(path)}\n{checked}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
