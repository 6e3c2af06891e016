"""How much memory this process may use: the machine's, or less by a cgroup."""

import os
from collections.abc import Iterator
from pathlib import Path

NO_LIMIT = 2**60
"""Bytes from which on a cgroup's limit is none: the kernel writes a large number where there is none."""


def memory_limit() -> int | None:
    """Bytes of memory and swap that this process may have: the machine's, or less by a cgroup; None: unknown."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") + _swap()
    except (ValueError, OSError):
        return None
    return min([machine, *cgroup_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))])


def cgroup_limits(own: Path, root: Path) -> Iterator[int]:
    """The limits of the cgroups that a process is in (version 2, or 1), from its own to the outermost."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base, file = (root, "memory.max") if not controllers else (root / "memory", "memory.limit_in_bytes")
        inner = base / name.lstrip("/")
        for folder in (inner, *inner.parents):
            limit = _number_in(folder / file)
            if limit is not None and limit < NO_LIMIT:
                swap = _number_in(folder / "memory.swap.max")  # the word max, or version 1: all that the machine has
                yield limit + (_swap() if swap is None else swap)
            if folder == base:
                break


def _number_in(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None


def _swap() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("SwapTotal:")), 0)
