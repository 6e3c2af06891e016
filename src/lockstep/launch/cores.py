"""The cores that this process may use, and the CPU threads of each rank."""

import math
import os
from pathlib import Path

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
QUOTAS = (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
"""The files of a control group that hold its quota and the period: of version 2, and of version 1."""


def usable_cores(root: Path = Path("/")) -> int:
    """Return how many cores this process may use: by its affinity, and by the CPU quota of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min(cores, *quotas(root))))


def quotas(root: Path) -> list[float]:
    """Return the CPU quotas of this process's control groups and of those above them, in cores; infinity for none."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return [math.inf]
    limits = [math.inf]
    for controllers, _, path in (line.partition(":")[2].partition(":") for line in lines):
        if controllers == "" or "cpu" in controllers.split(","):
            group = root / "sys/fs/cgroup" / controllers / path.strip("/")
            limits += [_quota(folder) for folder in (group, *group.parents)]
    return limits


def _quota(group: Path) -> float:
    for names in QUOTAS:
        try:
            quota, period = (float(word) for name in names for word in (group / name).read_text().split())
        except (OSError, ValueError):  # no such file, or `max`
            continue
        if quota > 0:
            return quota / period
    return math.inf


def default_threads(ranks: int) -> int:
    """Return the threads of each of a machine's ranks: those that the environment names, or its share of the cores."""
    for name in VARIABLES:
        threads = os.environ.get(name, "").partition(",")[0].strip()
        if threads.isdecimal() and int(threads) > 0:
            return int(threads)
    return max(1, usable_cores() // ranks)


def crowded(threads: int, ranks: int, load: float) -> str:
    """Return a line that says what to type if threads that nobody typed wait for cores, else an empty text.

    load: of the machine, as `os.getloadavg` returns it.
    """
    cores, all_cores = usable_cores(), os.cpu_count() or 1
    if ranks * threads > cores:
        hint = f"threads={max(1, cores // ranks)}" if threads > 1 else f"devices={cores}"
        return f"threads: {ranks} × {threads} of them share {cores} core{'s' * (cores > 1)}; {hint} may be faster"
    if threads > 1 and load > all_cores:
        return f"threads: the load of this machine is {load:.1f}, of {all_cores} cores; threads=1 may be faster"
    return ""
