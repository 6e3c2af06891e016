"""Start the ranks of a world on this machine, or join those of an external launcher.

This file imports nothing of Lockstep: a rank imports only the modules that it needs (its entry point is `worker`).
"""

import gc


def collect_rarely() -> None:
    """Raise gc's thresholds: with the defaults, a third of `import lightning` is spent in collections."""
    gc.set_threshold(100_000, 50, 50)
