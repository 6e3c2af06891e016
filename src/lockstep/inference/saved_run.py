"""The plan and the checkpoint of a trained net, read back from what its run has left."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lockstep.checkpoint.content import SECTION
from lockstep.checkpoint.files import BEST, FOLDER, LAST, DamagedCheckpoint, read_checkpoint
from lockstep.config_error import ConfigError, config_error, shorten
from lockstep.files import absolute, short_path
from lockstep.plan import Plan
from lockstep.run_files import CONFIG
from lockstep.schemas.engine import ENGINES
from lockstep.schemas.plan_json import from_json

HINT = "the folder of a run, or one of its checkpoints"
UNREADABLE = (LookupError, TypeError, AttributeError, ValueError, AssertionError, ImportError)
"""Errors of reading a plan that another version has written."""


def read_run(run: str | Path) -> tuple[Plan, Mapping[str, Any]]:
    """Return the plan that trained a net, with `ckpt_path`, and the checkpoint at this path.

    Args:
        run: the folder of a run: its last net, or with `test=best` its best one; or one of its checkpoints.

    Raises:
        ConfigError: there is no such run or checkpoint, or this version cannot read it.
    """
    path = Path(absolute(str(run)))
    if path.is_file():
        return _read(path)
    last = _last_checkpoint(path)
    plan, checkpoint = _read(last)
    return _read(last.with_name(BEST)) if plan.test == "best" else (plan, checkpoint)


def _last_checkpoint(folder: Path) -> Path:
    """Return last.ckpt of a run, or of the first engine of `engine=both`; best.ckpt if it is the only one."""
    runs = (folder, *(folder / engine for engine in ENGINES))
    candidates = [run / FOLDER / name for name in (LAST, BEST) for run in runs]
    last = next((path for path in candidates if path.is_file()), None)
    if last is not None:
        return last
    jobs = sorted(config.parent for config in folder.glob(f"*/{CONFIG}"))
    reason, hint = f"there is no run: {short_path(candidates[0])} is missing", HINT
    if (folder / CONFIG).is_file():
        reason, hint = "this run has saved no checkpoint", "the folder of the run that trained"
    elif jobs:
        reason, hint = f"it is a sweep of {len(jobs)} jobs", f"{short_path(jobs[0])}, for example"
    raise config_error("run", short_path(folder), reason, hint)


def _read(path: Path) -> tuple[Plan, Mapping[str, Any]]:
    try:
        checkpoint = read_checkpoint(path)
        plan: Plan = from_json(checkpoint[SECTION]["plan"])
        return replace(plan, ckpt_path=str(path)), checkpoint
    except DamagedCheckpoint as error:
        reason = str(error)
    except UNREADABLE as error:
        reason = f"it is no checkpoint of this version ({shorten(str(error))})"
        reason = str(error) if isinstance(error, ConfigError) else reason
    raise config_error("run", short_path(path), reason, HINT)
