"""Memory that a net has freed stays with its process for the next step: disable glibc's trimming.

glibc gives large blocks back to the kernel as soon as they are free, and takes them anew, page by page and zeroed, for
the same tensors of the next step: half the time of a convolutional net on a CPU (see `mallopt`, M_MMAP_MAX and
M_TRIM_THRESHOLD, in the Linux manual). A rank does nothing but train, so it keeps what it once needed.
"""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
NEVER = -1


USUAL_MMAP_MAX, USUAL_TRIM_THRESHOLD = 65536, 128 * 1024
"""glibc's own, from the same page."""


def disable_malloc_trim() -> None:
    """Disable it in the whole process; nothing where the C library is not glibc."""
    _set(0, NEVER)


def give_back_freed() -> None:
    """Restore glibc's defaults: a process that trained has other work to do."""
    _set(USUAL_MMAP_MAX, USUAL_TRIM_THRESHOLD)


def _set(mmap_max: int, trim_threshold: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_MMAP_MAX, mmap_max)
        mallopt(M_TRIM_THRESHOLD, trim_threshold)
