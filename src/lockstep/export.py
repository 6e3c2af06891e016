"""`python -m lockstep.export RUN --format FORMAT`: write the net of a run for other programs, and check the file."""

import argparse
import sys
from pathlib import Path

from lockstep.config_error import ConfigError, require
from lockstep.disk import disk_errors_as_config_errors
from lockstep.files import short_path
from lockstep.streams import outlive_readers

SUFFIXES = {"safetensors": ".safetensors", "onnx": ".onnx", "torch_export": ".pt2"}
"""The formats, and how their files end."""


def main() -> int:
    """Write the file and print its path; return 2 if the net cannot be exported."""
    outlive_readers()
    parser = argparse.ArgumentParser(prog="python -m lockstep.export", description="Write a trained net to a file.")
    parser.add_argument("run", help="the folder of a run, or a checkpoint")
    parser.add_argument("--format", choices=SUFFIXES, default="safetensors", help="of the file (safetensors)")
    parser.add_argument("--output", type=Path, help="the file to write (net.… in the folder of the run)")
    typed = parser.parse_args()
    try:
        if typed.output is not None:
            reason, suffix = f"a file of the format {typed.format} ends otherwise", SUFFIXES[typed.format]
            hint = f"--output net{suffix}"
            require(typed.output.suffix == suffix, "--output", typed.output, reason, hint)
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
