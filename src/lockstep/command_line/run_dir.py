"""The folder of a run, which Hydra creates before the plan is checked: created here first, removed if it stays empty.

Hydra instantiates RunFolder (conf/hydra/callbacks). It would only log an exception of a callback: this one exits.
"""

import atexit
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lockstep.config_error import ConfigError, require
from lockstep.disk import write_error
from lockstep.launch.failure import print_exit_reason


class RunFolder(Callback):
    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        create_folder(config, "hydra.run.dir")

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        create_folder(config, "hydra.sweep.dir")


def create_folder(config: DictConfig, key: str) -> None:
    """Create the folder of a run or a sweep, to be removed at exit if it is empty; exit if it cannot be created."""
    try:
        folder = OmegaConf.select(config, key)
    except OmegaConfBaseException:
        return  # Hydra raises it again
    path = Path(str(folder)).absolute()
    atexit.register(remove_empty, [parent for parent in (path, *path.parents) if not os.path.lexists(parent)])
    try:
        require(folder not in ("", None), key, folder, "it names no folder", f"{key}=FOLDER, or leave it out")
        Path(str(folder)).mkdir(parents=True, exist_ok=True)
    except (ConfigError, OSError) as error:
        print_exit_reason(str(write_error(str(folder), error, key) if isinstance(error, OSError) else error), None)
        raise SystemExit(2) from None


def remove_empty(folders: Sequence[Path]) -> None:
    """Remove the folders that hold nothing, or only Hydra's words of a sweep without jobs; children first."""
    for folder in folders:
        with suppress(OSError):
            if os.listdir(folder) == ["multirun.yaml"]:  # noqa: PTH208
                (folder / "multirun.yaml").unlink()
            folder.rmdir()
