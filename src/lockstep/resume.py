"""Where a run resumes: which folder `resume=true` means, and which checkpoint `last` is."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep import launch
from lockstep.checkpoint.files import FOLDER, newest_whole
from lockstep.config_error import config_error

LOGS = Path("logs")
NEWEST = "last"


def run_folder(resume: object, name: object, own: Path, given: bool) -> Path:
    """The folder that a run writes to: its own, or, where it resumes and none was `given`, the newest of its name.

    Raises:
        ConfigError: there is no run to resume.
    """
    if resume is not True or given:
        return own
    newest, damaged = newest_whole(_runs(name))
    if newest is None:
        why = f"no run below {LOGS / str(name)} has left a whole checkpoint"
        raise config_error("resume", True, why, "resume=false, or hydra.run.dir=FOLDER, the folder of a run")
    _report_damaged(newest, [path for path in damaged if path.parent != newest.parent])  # a run reports its own
    return newest.parents[1]


def starting_checkpoint(values: Mapping[str, Any], run_dir: Path) -> str | None:
    """The checkpoint that `ckpt_path` and `resume` mean: `last` is the newest undamaged one of this name.

    With `resume` it is the newest of the run's own folder; where there is none yet, the run begins anew.
    """
    path = values["ckpt_path"]
    if values["resume"] is True:
        if path is not None:
            raise config_error("ckpt_path", path, "resume=true resumes from the run's own checkpoint", "one of the two")
        last = _report_damaged(*newest_whole([run_dir]))
        return None if last is None else str(last)
    if path != NEWEST:
        own: str | None = absolute(path)
        return own
    last = _report_damaged(*newest_whole(_runs(values["name"])))
    if last is None:
        why = f"there is no whole checkpoint below {LOGS / str(values['name'])}"
        raise config_error("ckpt_path", NEWEST, why, "ckpt_path=null to begin anew, or the path of a .ckpt file")
    return str(last)


def absolute(path: Any) -> Any:
    """An absolute path, `~` expanded; pathlib's own raises where there is no such home."""
    return os.path.abspath(os.path.expanduser(path)) if isinstance(path, str) else path  # noqa: PTH100, PTH111


def _runs(name: object) -> list[Path]:
    found = (LOGS / str(name)).absolute().rglob(f"{FOLDER}/*.ckpt")
    return [*{path.parents[1] for path in found}]


def _report_damaged(newest: Path | None, damaged: list[Path]) -> Path | None:
    """Print which newer checkpoints are damaged, and which one is used instead."""
    if newest is not None and damaged and launch.is_rank_zero(launch.rank_from_env()):
        torn = " and ".join(str(path) for path in damaged)
        print(f"{torn}: damaged; resuming from {newest}", file=sys.stderr, flush=True)
    return newest
