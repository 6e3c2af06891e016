"""Python's collector of cyclic garbage, run seldom: imports and training make many objects and hardly any cycles."""

import gc


def collect_rarely() -> None:
    """At Python's own thresholds a third of `import lightning` is spent in collections."""
    gc.set_threshold(100_000, 50, 50)
