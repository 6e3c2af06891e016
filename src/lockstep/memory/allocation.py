"""Tune how a rank's process allocates memory (glibc's malloc) and collects garbage (Python's gc).

glibc returns a large block to the kernel as soon as it is freed, and gets it back, page by page and zeroed, for the
same tensor of the next step: half the time of a convolutional net on a CPU.
"""

import gc
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of `mallopt`; see its manual page, which also has the defaults."""
DEFAULT_TRIM_THRESHOLD, DEFAULT_MMAP_MAX = 128 * 1024, 65536


def disable_malloc_trim() -> None:
    """Keep freed memory in the process; no-op without glibc."""
    _mallopt(trim_threshold=-1, mmap_max=0)


def enable_malloc_trim() -> None:
    """Restore glibc's defaults."""
    _mallopt(DEFAULT_TRIM_THRESHOLD, DEFAULT_MMAP_MAX)


def _mallopt(trim_threshold: int, mmap_max: int) -> None:
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_MMAP_MAX, mmap_max)
        mallopt(M_TRIM_THRESHOLD, trim_threshold)


def collect_rarely() -> None:
    """Raise gc's thresholds: with the defaults, a third of `import lightning` is spent in collections."""
    gc.set_threshold(100_000, 50, 50)
