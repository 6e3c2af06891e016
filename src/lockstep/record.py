"""What a run leaves behind: the digest of its net, and metrics.json."""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

METRICS = "metrics.json"
Metrics = dict[str, str | int | float]


def digest(state: "Mapping[str, Tensor]") -> str:
    """SHA-256 over the bytes of every parameter and buffer, in state_dict order."""
    import torch

    sha = hashlib.sha256()
    for tensor in state.values():
        sha.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def save_metrics(folder: Path, metrics: Metrics) -> None:
    """Write metrics.json, floats in full precision; a reader sees the whole file or none.

    JSON has no NaN and no infinity: a loss that is either becomes null.
    """
    lost = {key for key, value in metrics.items() if isinstance(value, float) and not math.isfinite(value)}
    numbers = {key: None if key in lost else value for key, value in metrics.items()}
    part = folder / ".metrics.json.part"
    part.write_text(json.dumps(numbers, indent=2) + "\n")
    part.replace(folder / METRICS)


def table(metrics: Metrics) -> str:
    """Two columns for the terminal."""
    rows = {key: f"{value:.6g}" if isinstance(value, float) else str(value) for key, value in metrics.items()}
    width = max(map(len, rows))
    return "\n".join(f"  {key:<{width}}  {value}" for key, value in rows.items())
