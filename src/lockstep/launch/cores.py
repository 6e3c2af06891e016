"""The cores that this process may use, and the CPU threads of each rank."""

import os
from pathlib import Path

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
QUOTAS = (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
"""The files of a control group that hold its quota and the period: of version 2, and of version 1."""


def usable_cores(root: Path = Path("/")) -> int:
    """Return how many cores this process may use: by its affinity, and by the CPU quota of its container."""
    cores: float = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    file = root / "proc/self/cgroup"
    for line in file.read_text().splitlines() if file.is_file() else ():
        _, controllers, path = line.split(":", 2)
        if controllers == "" or "cpu" in controllers.split(","):
            group = root / "sys/fs/cgroup" / controllers / path.strip("/")
            cores = min([cores, *map(quota, (group, *group.parents))])
    return max(1, int(cores))


def quota(group: Path) -> float:
    """Return the CPU quota of a control group in cores; infinity if it has none."""
    for names in QUOTAS:
        try:
            limit, period = (float(word) for name in names for word in (group / name).read_text().split())
        except (OSError, ValueError):  # no such file, or `max`
            continue
        if limit > 0:
            return limit / period
    return float("inf")


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
