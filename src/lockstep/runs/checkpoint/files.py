"""The files of checkpoints: reading them after a check for damage, and what `resume` and `ckpt_path` mean.

last.ckpt is the newest, previous.ckpt the one before it, best.ckpt that of the best epoch.
"""

import math
import os
import shutil
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from lockstep.base.config_error import config_error, require, shell_quote_override
from lockstep.base.files import absolute, atomic_write
from lockstep.plan.plan import Plan
from lockstep.runs.run_files import CONFIG, METRICS, read_config, run_of

FOLDER = "checkpoints"
LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"
LOGS = Path("logs")
NEWEST = ("last", "best")
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


def keep_undamaged(resumed: Path, last: Path) -> None:
    """Replace last.ckpt by previous.ckpt if a run resumes from that: the next save must not keep the damaged one."""
    previous = last.with_name(PREVIOUS)
    if resumed.resolve() == previous.resolve():
        hardlink(previous, LAST)


class DamagedCheckpoint(Exception):
    """A file is no undamaged checkpoint; the message is the reason."""


def read_checkpoint(path: Path, mmap: bool = False) -> Mapping[str, Any]:
    """Load a checkpoint without running code from it, after checking every checksum, or raise DamagedCheckpoint.

    With `mmap` memory is not filled: tensors that ranks have written apart stay on the meta device.
    """
    from lockstep.base.safe_loading import load  # with torch
    from lockstep.runs.checkpoint.shards import SHARDS, checked_parts, with_tensors

    try:
        with zipfile.ZipFile(path) as archive:
            intact = archive.testzip() is None
        checkpoint: Mapping[str, Any] = load(path, mmap=mmap) if intact else {}
        if SHARDS in checkpoint and mmap:
            for _ in checked_parts(checkpoint, path.parent):
                pass
        elif SHARDS in checkpoint:
            checkpoint = with_tensors(checkpoint, path.parent)
    except OSError as error:
        name = "" if error.filename in (None, str(path)) else f"{error.filename}: "
        raise DamagedCheckpoint(f"{name}{error.strerror}") from None
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
    both = plan.resume and path is not None
    require(not both, "ckpt_path", path, "resume=true resumes from the run's own checkpoint", "one of the two")
    if not plan.resume and path not in NEWEST:
        exists = path is None or os.path.lexists(absolute(path))
        require(exists, "ckpt_path", path, "there is no such file", "the path of a .ckpt file, or null")
        return replace(plan, ckpt_path=absolute(path)), {}
    in_folder = plan.resume and folder_given
    newest, skipped = newest_checkpoint([Path(plan.run_dir)] if in_folder else runs_of(plan.name))
    if newest is None:
        _raise_without_checkpoint(plan, skipped, in_folder)
        return plan, {}
    run = newest.parents[1]
    if plan.resume and not in_folder:
        skipped = _later_run(run, plan.name) | skipped
    if path == "best":
        newest = newest.with_name(BEST)
        require(newest.is_file(), "ckpt_path", path, f"{run} has none", "ckpt_path=last")
    return replace(plan, ckpt_path=str(newest), run_dir=str(run) if plan.resume else plan.run_dir), skipped


def _later_run(run: Path, name: str) -> dict[Path, str]:
    """Return the newest of the runs of a name that began after `run` and left nothing; raise if its options differ."""
    begun = {path.parent: path.stat().st_mtime for path in (LOGS / name).absolute().rglob(CONFIG)}
    later = [folder for folder in begun if begun[folder] > begun.get(run, math.inf)]
    later = [folder for folder in later if not (folder / METRICS).is_file() and not any(folder.rglob("*.ckpt"))]
    if not later:
        return {}
    newest = max(later, key=begun.__getitem__)
    first, second = read_config(run)[0], read_config(newest)[0]
    keys = (first.keys() | second.keys()) - {"resume", "ckpt_path"}
    differing = ", ".join(sorted(key for key in keys if first.get(key) != second.get(key)))
    reason = f"the newest run, {newest}, has no checkpoint, and the one before it differs in {differing}"
    hint = f"resume=true {shell_quote_override('hydra.run.dir', str(run))}, the one before"
    require(not differing, "resume", "true", reason, hint)
    return {newest: "it has no checkpoint"}


def _raise_without_checkpoint(plan: Plan, damaged: Mapping[Path, str], in_folder: bool) -> None:
    """Raise that no checkpoint can be resumed, unless `resume=true` begins in a folder where nothing is overwritten."""
    folder = Path(plan.run_dir) if in_folder else (LOGS / plan.name).absolute()
    if damaged:
        reason = "no checkpoint there can be read: " + ", ".join(f"{path} ({damaged[path]})" for path in damaged)
    elif not in_folder:
        runs = len([*folder.rglob(CONFIG)])
        reason = f"none of the {runs} runs of name={plan.name} below {folder} has left an undamaged checkpoint"
    elif (folder / METRICS).is_file() or any(folder.glob(f"*/{FOLDER}")):
        reason = f"{folder} holds results or runs, but no checkpoint of its own"
    else:
        return
    key, hint = "ckpt_path", "ckpt_path=null to start from scratch, or the path of a .ckpt file"
    if plan.resume:
        key, hint = "resume", "resume=false, or hydra.run.dir=FOLDER, another folder, to start anew"
    raise config_error(key, plan.ckpt_path or "true", reason, hint)


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
        return [engine if word == "engine=both" else word for word in words]
    except UNREADABLE:
        return []


def newest_checkpoint(runs: Iterable[Path]) -> tuple[Path | None, dict[Path, str]]:
    """Return the newest undamaged checkpoint of run folders, and newer ones, which are damaged, with reasons.

    best.ckpt counts in a folder that has no other.
    """
    times: dict[Path, float] = {}
    for folder in (run / FOLDER for run in runs):
        times |= _modified(folder / LAST) | _modified(folder / PREVIOUS) or _modified(folder / BEST)
    damaged: dict[Path, str] = {}
    for path in sorted(times, key=lambda path: -times[path]):
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
    except OSError:
        return {path: math.inf} if os.path.lexists(path) else {}
