"""The planted bugs of training.py, mirror.py and runs.py, read from their lines.

An entry is its name behind #, its file below src/lockstep and the test below tests that fails, and a diff: what is in
the file once (-), what the bug has in its place (+), and what stays (a space).
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.mutations.mirror import MIRROR
from tests.mutations.runs import RUNS
from tests.mutations.training import TRAINING


class Mutation(NamedTuple):
    """The `old` text is replaced by `new` in a file below src/lockstep."""

    name: str
    file: str
    old: str
    new: str
    test: str


def read(entries: str) -> Iterator[Mutation]:
    for entry in f"\n{entries.strip()}".split("\n# ")[1:]:
        name, *lines = entry.splitlines()
        diff = [line for line in lines if line[0] in "-+ "]
        file, test = " ".join(line for line in lines if line not in diff).split(maxsplit=1)
        old, new = ("\n".join(line[1:] for line in diff if line[0] in f"{sign} ") for sign in "-+")
        yield Mutation(name, file, old, new, f"tests/{test}")


MUTATIONS = [*read(TRAINING), *read(MIRROR), *read(RUNS)]
