"""The files of checkpoints: reading them after a check for damage, and what `resume` and `ckpt_path` mean.

last.ckpt is the newest, previous.ckpt the one before it, best.ckpt that of the best epoch.
"""

import math
import os
import shutil
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from lockstep.base.config_error import ConfigError, config_error, require, shell_quote_override
from lockstep.base.files import absolute, atomic_write, open_file
from lockstep.plan.plan import Plan
from lockstep.runs.run_files import CONFIG, METRICS, read_config, run_of

FOLDER = "checkpoints"
LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"
LOGS = Path("logs")
NEWEST = ("last", "best")
START = {  # the key, and what to write if there is no checkpoint to begin from; by whether the plan resumes
    False: ("ckpt_path", "ckpt_path=null to start from scratch, or the path of a .ckpt file"),
    True: ("resume", "resume=false, or hydra.run.dir=FOLDER, another folder, to start anew"),
}
UNREADABLE = (OSError, ValueError, yaml.YAMLError, TypeError, LookupError)
"""Errors of reading a config.yaml that is damaged, or of another version."""


def hardlink(path: Path, name: str) -> None:
    """Give a file a second name, replacing the file of that name. Files are never modified in place."""
    with atomic_write(path.with_name(name)) as temporary:
        temporary.unlink(missing_ok=True)
        try:
            os.link(path, temporary)
        except OSError:  # a file system without links
            shutil.copyfile(path, temporary)


class DamagedCheckpoint(Exception):
    """A file is no undamaged checkpoint; the message is the reason."""


def read_checkpoint(path: Path, mmap: bool = False) -> Mapping[str, Any]:
    """Load a checkpoint without running code from it, after checking every checksum, or raise DamagedCheckpoint."""
    from lockstep.base.safe_loading import load  # with torch

    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            intact = archive.testzip() is None
        checkpoint: Mapping[str, Any] = load(path, mmap=mmap) if intact else {}
    except OSError as error:
        raise DamagedCheckpoint(str(error.strerror)) from None
    except Exception as error:  # a damaged file may raise anything
        raise DamagedCheckpoint(f"it is no complete checkpoint of this project ({type(error).__name__})") from None
    if not intact:
        raise DamagedCheckpoint("its checksums are wrong")
    return checkpoint


def choose_checkpoint(plan: Plan, folder_given: bool) -> tuple[Plan, Mapping[Path, str]]:
    """Return the plan with its checkpoint's path and folder; and what is newer and cannot be taken, with the reason.

    `resume=true` means the newest undamaged checkpoint of the run's folder if the command names one (without any the
    run starts from scratch), else of all runs of this name; `ckpt_path=last` the latter, in a new folder; `best` is the
    best.ckpt beside it.
    """
    path = plan.ckpt_path
    if plan.resume and path is not None:
        raise config_error("ckpt_path", path, "resume=true resumes from the run's own checkpoint", "one of the two")
    if not plan.resume and path not in NEWEST:
        return replace(plan, ckpt_path=_existing_path(path)), {}
    in_folder = plan.resume and folder_given
    newest, damaged = newest_checkpoint([Path(plan.run_dir)] if in_folder else runs_of(plan.name))
    if newest is not None:
        run = newest.parents[1]
        if plan.resume and not in_folder and (later := _later_run(run, plan.name)) is not None:
            damaged = {later: "it has no checkpoint", **damaged}
        if path == "best":
            newest = newest.with_name(BEST)
            require(newest.is_file(), "ckpt_path", path, f"{run} has none", "ckpt_path=last")
        return replace(plan, ckpt_path=str(newest), run_dir=str(run) if plan.resume else plan.run_dir), damaged
    _require_readable(damaged, path)
    if in_folder:
        _require_nothing_within(Path(plan.run_dir))
        return plan, {}
    raise _no_checkpoint(plan.name, path)


def _later_run(run: Path, name: str) -> Path | None:
    """Return the newest run of a name if it began after `run`, and has no checkpoint; raise if its options differ."""
    saved = runs_of(name)
    begun = {path.parent: path.stat().st_mtime for path in (LOGS / name).absolute().rglob(CONFIG)}
    empty = [each for each in begun if not any(other.is_relative_to(each) for other in saved)]
    later = max((each for each in empty if not (each / METRICS).is_file()), key=begun.__getitem__, default=run)
    if begun.get(later, 0) <= begun.get(run, math.inf):
        return None
    differing: list[str] = []
    with suppress(*UNREADABLE):
        first, second = read_config(run)[0], read_config(later)[0]
        keys = (first.keys() | second.keys()) - {"resume", "ckpt_path"}
        differing = sorted(key for key in keys if first.get(key) != second.get(key))
    reason = f"the newest run, {later}, has no checkpoint, and the one before it differs in {', '.join(differing)}"
    hint = f"resume=true {shell_quote_override('hydra.run.dir', str(run))}, the one before"
    require(not differing, "resume", "true", reason, hint)
    return later


def _require_nothing_within(folder: Path) -> None:
    """Raise if a folder holds runs, as that of engine=both or of a sweep does, or what is left of a finished one."""
    if (folder / METRICS).is_file():
        reason = f"{folder} is of a finished run, whose checkpoints are gone"
        raise config_error("resume", "true", reason, "hydra.run.dir=FOLDER, another folder, to start anew")
    runs = sorted({path.parents[1] for path in folder.glob(f"*/{FOLDER}/*.ckpt")})
    if runs:
        reason = f"{folder} is no run, but holds runs ({', '.join(run.name for run in runs)})"
        raise config_error("resume", "true", reason, shell_quote_override("hydra.run.dir", str(runs[0])))


def _no_checkpoint(name: str, path: str | None) -> ConfigError:
    (key, hint), folder = START[path is None], (LOGS / name).absolute()
    runs = f"none of the {len([*folder.rglob(CONFIG)])} runs of name={name} below {folder}"
    return config_error(key, path or "true", f"{runs} has left an undamaged checkpoint", hint)


def require_start(path: Any, resume: Any, name: Any, folder_given: bool) -> None:
    """Raise if there is no checkpoint to begin from, whatever the rest of the plan."""
    if (path in NEWEST or (path is None and resume is True and not folder_given)) and not runs_of(str(name)):
        raise _no_checkpoint(name, path)
    _existing_path(path)


def _existing_path(path: Any) -> Any:
    """Return the absolute path of the file that `ckpt_path` names, if it names one."""
    if isinstance(path, str) and path not in NEWEST:
        require("://" not in path, "ckpt_path", path, "a URL is not downloaded", "the path of a .ckpt file")
        path = absolute(path)
        exists = os.path.lexists(path)
        require(exists, "ckpt_path", path, "there is no such file", "the path of a .ckpt file, or null")
    return path


def runs_of(name: str) -> set[Path]:
    """Return the folders of all runs of a name that have checkpoints."""
    return {path.parents[1] for path in (LOGS / name).absolute().rglob(f"{FOLDER}/*.ckpt")}


def typed_words(run: Path | None, name: str, path: Any = None) -> list[str]:
    """Return what was typed for a run, or for the one with the newest checkpoint of a name; none if it is not known.

    `path`: the checkpoint, as `ckpt_path` names it.
    """
    try:
        if isinstance(path, str) and path not in NEWEST:
            run = run_of(Path(absolute(path)))
        elif run is None:
            newest, _ = newest_checkpoint(runs_of(name))
            run = newest.parents[1] if newest is not None else LOGS
        config, words, _ = read_config(run)
        engine = f"engine={config['engine']['name']}"  # engine=both is two runs
        return [] if "task" in config else [engine if word == "engine=both" else word for word in words]
    except UNREADABLE:
        return []


def resume_after_restart(plan: Plan) -> Plan:
    """Return the plan of restarted ranks, with their run's own last checkpoint; raise if all of these are damaged."""
    run = Path(plan.run_dir)
    config = run / CONFIG  # the first file of a run: an older checkpoint is an earlier run's
    began = config.stat().st_mtime_ns if config.is_file() else 0
    last, damaged = newest_checkpoint([run], began) if plan.train else (None, {})
    if last is None:
        _require_readable(damaged)
        return plan
    return replace(plan, ckpt_path=str(last), resume=True)


def _require_readable(damaged: Mapping[Path, str], path: str | None = None) -> None:
    """Raise if there are checkpoints, all damaged."""
    if damaged:
        key, hint = START[path is None]
        files = ", ".join(f"{file} ({reason})" for file, reason in damaged.items())
        raise config_error(key, path or "true", f"no checkpoint there can be read: {files}", hint)


def newest_checkpoint(runs: Iterable[Path], since: float = 0) -> tuple[Path | None, dict[Path, str]]:
    """Return the newest undamaged checkpoint of run folders, and newer ones, which are damaged, with reasons.

    best.ckpt counts in a folder that has no other, and none before `since` (in nanoseconds).
    """
    times: dict[Path, float] = {}
    for folder in (run / FOLDER for run in runs):
        times |= _modified(folder / LAST) | _modified(folder / PREVIOUS) or _modified(folder / BEST)
    damaged: dict[Path, str] = {}
    for path in sorted((path for path in times if times[path] >= since), key=lambda path: -times[path]):
        try:
            read_checkpoint(path, mmap=True)
            return path, damaged
        except DamagedCheckpoint as reason:
            damaged[path] = str(reason)
    return None, damaged


def _modified(path: Path) -> dict[Path, float]:
    """Return when a path was modified, by that path; infinity if that cannot be read, nothing if there is no file."""
    try:
        return {path: path.stat().st_mtime_ns}
    except (FileNotFoundError, NotADirectoryError, ValueError):
        dangling = path.is_symlink() or (path.parent.is_symlink() and not path.parent.exists())  # a disk that is gone
        return {path: math.inf} if dangling else {}
    except OSError:
        return {path: math.inf}
