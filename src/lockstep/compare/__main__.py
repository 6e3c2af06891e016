"""`python -m lockstep.compare RUN_A RUN_B`: show where two runs differ."""

import argparse
import sys
from pathlib import Path

from lockstep.compare import compare
from lockstep.config_error import ConfigError
from lockstep.streams import outlive_readers


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0: within the tolerance; 1: different; 2: nothing to compare."""
    outlive_readers()
    parser = argparse.ArgumentParser(prog="python -m lockstep.compare", description="Show where two runs differ.")
    parser.add_argument("run_a", type=Path)
    parser.add_argument("run_b", type=Path)
    parser.add_argument("--tolerance", type=float, help="instead of the expected agreement: 0 for identical bits")
    given = parser.parse_args(arguments)
    try:
        comparison = compare(given.run_a, given.run_b, given.tolerance)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    print(comparison.shown())
    return 0 if comparison.within_tolerance else 1


if __name__ == "__main__":
    raise SystemExit(main())
