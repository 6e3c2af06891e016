"""The folder that Hydra makes for a run before its plan is checked: refused, or removed if it stays empty.

Hydra calls RunFolder first. What it raises Hydra would only warn of, so a refusal ends the command here.
"""

import contextlib
import os
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lockstep.config_error import ConfigError, require
from lockstep.launch.failure import print_exit_reason
from lockstep.plan_checks import require_run_name

NEW: list[Path] = []
"""Folders that are about to be made, the deepest first."""


class RunFolder(Callback):
    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        check_folder(config, "hydra.run.dir")

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        check_folder(config, "hydra.sweep.dir")


def check_folder(config: DictConfig, key: str) -> None:
    """Note which folders are not there yet; end the command where the run's folder would lie anywhere else."""
    try:
        folder, name = OmegaConf.select(config, key), config.name
    except OmegaConfBaseException:
        return  # Hydra meets it too, and its error is explained
    try:
        require(folder != "", key, folder, "it names no folder", f"{key}=FOLDER, or leave it out")
        require_run_name(name)
    except ConfigError as error:
        print_exit_reason(str(error), None)
        raise SystemExit(2) from None
    path = Path(str(folder)).absolute()
    NEW[:] = [one for one in (path, *path.parents) if not os.path.lexists(one)]


def remove_empty_dirs() -> None:
    """Remove the new folders that nothing was written to."""
    for path in NEW:
        with contextlib.suppress(OSError):
            path.rmdir()
