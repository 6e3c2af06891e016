"""`python -m tests.mutations [NAME …] [--sample N]`: plant each bug in a copy of the tree and run its test there.

The tests pass in a copy without a bug first: one that always fails would see any. Those of a sample do not: .ci/run
takes one, and then runs all tests. Exit status 1 if a bug lives, 2 if an entry cannot be tried: its text is gone, its
test, or that test fails without the bug.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

from tests.conftest import MNIST_ROOT, ROOT
from tests.mutations.table import MUTATIONS, Mutation

PARTS = ("src", "conf", "tests", "train.py", "pyproject.toml", "README.md", "docs")
LIMIT = 900
AT_A_TIME = 2
"""Bugs: most tests keep one core busy."""
SEEN, LIVES = 1, 0
"""Exit statuses of pytest: a test failed, none did."""


def copy_of_the_tree(folder: Path) -> Path:
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, folder / part)
    return folder


def planted(mutation: Mutation, folder: Path) -> Path:
    """Copy the tree and plant the bug in it."""
    copy_of_the_tree(folder)
    file = folder / "src" / "lockstep" / mutation.file
    text = file.read_text()
    if text.count(mutation.old) != 1:
        raise SystemExit(f"{mutation.name}: its text is not once in {mutation.file}; mend tests/mutations")
    file.write_text(text.replace(mutation.old, mutation.new))
    return folder


def status_of(tests: Sequence[str], folder: Path) -> int:
    """Return pytest's exit status for these tests in the copy."""
    words = ("-q", "-x", "-p", "no:cacheprovider", "-m", "slow or not slow", *tests)
    environment = {"PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}", "LOCKSTEP_MNIST": str(MNIST_ROOT)}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=folder,
        env={**os.environ, **environment, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT + 60 * len(tests),
        check=False,
    )
    if ended.returncode not in (SEEN, LIVES) or (len(tests) > 1 and ended.returncode):
        print(ended.stdout[-2000:], ended.stderr[-2000:], sep="\n")
    return ended.returncode


def tried(mutation: Mutation) -> tuple[int, float]:
    """Return pytest's exit status with the bug, and the seconds it took."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        return status_of([mutation.test], planted(mutation, Path(folder))), time.monotonic() - began


def chosen(names: Sequence[str], sample: int | None) -> list[Mutation]:
    """Return the bugs of these names, or a sample of all that changes each day."""
    known = {mutation.name: mutation for mutation in MUTATIONS}
    if names:
        if unknown := [name for name in names if name not in known]:
            raise SystemExit(f"{unknown[0]}: there is no such bug; write one of {', '.join(known)}")
        return [known[name] for name in names]
    if sample is None:
        return MUTATIONS
    return random.Random(date.today().toordinal()).sample(MUTATIONS, min(sample, len(MUTATIONS)))


def pass_without_a_bug(mutations: Sequence[Mutation]) -> bool:
    began, tests = time.monotonic(), [*dict.fromkeys(mutation.test for mutation in mutations)]
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        status = status_of(tests, copy_of_the_tree(Path(folder)))
    print(f"{len(tests)} tests ended with {status} without a bug  {time.monotonic() - began:.0f} s", flush=True)
    return status == LIVES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description="Plant bugs; see that tests fail.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--sample", type=int, help="so many of them, by today's date")
    arguments = parser.parse_args()
    mutations, worst = chosen(arguments.names, arguments.sample), 0
    if arguments.sample is None and not pass_without_a_bug(mutations):
        print("a test fails without a bug, too")
        return 2
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for mutation, (status, seconds) in zip(mutations, pool.map(tried, mutations), strict=True):
            outcome = {SEEN: "seen", LIVES: "LIVES"}.get(status, f"not tried: pytest ended with {status}")
            print(f"{outcome:<6} {seconds:5.0f} s  {mutation.name}  ({mutation.test})", flush=True)
            worst = max(worst, {SEEN: 0, LIVES: 1}.get(status, 2))
    return worst


if __name__ == "__main__":
    raise SystemExit(main())
