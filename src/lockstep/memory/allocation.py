"""Tune how a rank's process allocates memory (glibc's malloc) and collects garbage (Python's gc).

glibc returns a large block to the kernel as soon as it is freed, and gets it back, page by page and zeroed, for the
same tensor of the next step: half the time of a convolutional net on a CPU.
"""

import gc
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # parameters of `mallopt`; see its manual page, which also has the defaults
DEFAULT_TRIM_THRESHOLD, DEFAULT_MMAP_MAX = 128 * 1024, 65536


def set_malloc_trim(enabled: bool) -> None:
    """Return freed memory to the kernel by glibc's defaults, or keep it in the process; no-op without glibc."""
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_MMAP_MAX, DEFAULT_MMAP_MAX if enabled else 0)
        mallopt(M_TRIM_THRESHOLD, DEFAULT_TRIM_THRESHOLD if enabled else -1)


def collect_rarely() -> None:
    """Raise gc's thresholds: with the defaults, a third of `import lightning` is spent in collections."""
    gc.set_threshold(100_000, 50, 50)
