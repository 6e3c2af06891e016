"""Arithmetic of global batches."""


def batch_count(samples: int, batch_size: int, drop_last: bool = False) -> int:
    """Return the number of global batches of an epoch."""
    return samples // batch_size if drop_last else -(-samples // batch_size)
