"""Which rows of a data set train, validate and test: chosen by a permutation that is always the same."""

from collections.abc import Mapping

import torch


def split_rows(total: int, sizes: Mapping[str, float]) -> dict[str, list[int]]:
    """The rows of train, val and test; no rows to train on where the others take all.

    Args:
        sizes: of val and test, in rows or, below 1, as shares of all.
    """
    counts = {name: round(size * total) if 0 < size < 1 else int(size) for name, size in sizes.items()}
    train = max(0, total - sum(counts.values()))
    order = torch.randperm(total, generator=torch.Generator().manual_seed(0)).tolist()
    cut = train + counts["val"]
    return {"train": order[:train], "val": order[train:cut], "test": order[cut:]}
