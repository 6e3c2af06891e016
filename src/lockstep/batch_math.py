"""How many batches, and how many samples in each: the arithmetic of the sample order, without a tensor."""


def batch_count(samples: int, batch_size: int, drop_last: bool = False) -> int:
    """How many global batches an epoch has."""
    return samples // batch_size if drop_last else -(-samples // batch_size)


def window_samples(samples: int, batch_size: int, accumulate: int, batch: int, drop_last: bool = False) -> int:
    """How many samples the optimizer step that takes in global batch `batch` averages over.

    The epoch's last window may hold fewer batches than `accumulate`, and the last batch of it may be ragged.
    """
    first = batch - batch % accumulate
    end = min(first + accumulate, batch_count(samples, batch_size, drop_last))
    return min(end * batch_size, samples) - first * batch_size
