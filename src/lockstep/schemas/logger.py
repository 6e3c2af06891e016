"""Where the curves go."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Logger:
    name: Literal["tensorboard", "csv", "none"]
