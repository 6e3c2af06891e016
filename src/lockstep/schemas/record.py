"""What the record holds beside a line for each optimizer step."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Record:
    """`weights`: how often it holds a fingerprint of each rank's weights, buffers and optimizer state."""

    weights: Literal["epoch", "step"]
