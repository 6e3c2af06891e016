"""Loggers of a user: one writes down its calls, one is no Logger."""

import json
import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger


class Recording(Logger):
    """Each call as a line of `save_dir`/`file`; made on every rank, it must be told to write on one."""

    def __init__(self, save_dir: str, file: str = "told.jsonl") -> None:
        super().__init__()
        self.path = Path(save_dir) / file

    name = "recording"
    version = 0

    def _write(self, call: str, *values: Any) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps([call, os.getpid(), *values]) + "\n")

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._write("metrics", dict(metrics), step)

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        self._write("hparams", params if isinstance(params, dict) else vars(params))

    def save(self) -> None:
        self._write("save")

    def finalize(self, status: str) -> None:
        self._write(status)


class Notebook:
    """No Logger of Lightning."""
