"""The plan of a run, read back from its config.yaml, with the checkpoint that holds its net."""

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from lockstep import schemas
from lockstep.checkpoint.choice import newest_checkpoint
from lockstep.checkpoint.files import BEST, FOLDER
from lockstep.config_error import ConfigError, config_error
from lockstep.files import absolute, short_path
from lockstep.plan import Plan
from lockstep.run_files import CONFIG, run_of
from lockstep.schemas.engine import ENGINES
from lockstep.strategies.registry import ONE_DEVICE

HINT = "the folder of a run, or one of its checkpoints"

FOR_TEST: dict[str, Any] = {
    **{"engine": schemas.Lightning("lightning"), "strategy": ONE_DEVICE, "devices": 1, "num_nodes": 1},
    **{"train": False, "test": True, "resume": False, "model_summary": False, "optimized_metric": None},
    **{"logger": (), "callbacks": (), "sync_batchnorm": False, "dropout_rng": "per_rank", "show_shapes": False},
    **{"compile": False, "profiler": None},
}
"""Options in place of those that the run was trained with."""


def read_plan(run: str | Path) -> Plan:
    """Return the plan of a run that tests the net of `ckpt_path`, on one CPU.

    Args:
        run: the folder of a run: its last net, or with `test=best` its best one; or one of its checkpoints.

    Raises:
        ConfigError: there is no such run or checkpoint, or this version cannot read its configuration.
    """
    path = Path(absolute(str(run)))
    folder = run_of(path) if path.is_file() else _engine_folder(path)
    values = _read_config(folder, run)
    checkpoint = path if path.is_file() else _checkpoint_of(folder, values.get("test") == "best", run)
    hints = {**get_type_hints(Plan, include_extras=True), "task": schemas.BuiltInTask | schemas.UserTask}
    try:
        options = {
            name: _restore(hints[name], value) for name, value in values.items() if name not in (*FOR_TEST, "ckpt_path")
        }
        return Plan(**options, **FOR_TEST, ckpt_path=str(checkpoint))
    except (ConfigError, LookupError, TypeError, ValueError, AttributeError) as error:
        reason = f"this version does not read its {CONFIG} ({error})"
        raise config_error("run", short_path(str(run)), reason, HINT) from None


def _engine_folder(path: Path) -> Path:
    """Return the folder of a run, of `engine=both` that of its first engine."""
    if not (path / FOLDER).is_dir():
        for engine in ENGINES:
            if (path / engine / FOLDER).is_dir():
                return path / engine
    return path


def _read_config(folder: Path, run: str | Path) -> Mapping[str, Any]:
    file, shown = folder / CONFIG, short_path(str(run))
    if not file.is_file():
        jobs = sorted(config.parent.name for config in folder.glob(f"*/{CONFIG}") if folder == Path(absolute(str(run))))
        reason = f"it is a sweep of {len(jobs)} jobs" if jobs else f"there is no run: {short_path(file)} is missing"
        hint = f"{short_path(folder / jobs[0])}, for example" if jobs else HINT
        raise config_error("run", shown, reason, hint)
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise config_error("run", shown, f"{short_path(file)} cannot be read ({error})", HINT) from None
    return values if isinstance(values, Mapping) else {}


def _checkpoint_of(folder: Path, best: bool, run: str | Path) -> Path:
    if best:
        return folder / FOLDER / BEST
    checkpoint, damaged = newest_checkpoint([folder])
    if checkpoint is None:
        reason = "; ".join(f"{path}: {reason}" for path, reason in damaged.items()) or "it has saved no checkpoint"
        raise config_error("run", short_path(str(run)), reason, HINT)
    return checkpoint


def _restore(kind: Any, value: Any) -> Any:
    """Return a value of config.yaml as its type; of several dataclasses as the one with these fields and this name."""
    if get_origin(kind) is Annotated:
        return _restore(get_args(kind)[0], value)
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    if isinstance(value, list):
        items = next((get_args(option)[0] for option in options if get_origin(option) is tuple), Any)
        return tuple(_restore(items, item) for item in value) if items is not Any else value
    dataclasses = [option for option in options if is_dataclass(option)]
    if not dataclasses or not isinstance(value, Mapping):
        return value
    fitting = [option for option in dataclasses if _fits(option, value)]
    if not fitting:
        raise ValueError(f"it has the keys {', '.join(map(str, value))}, which no option has")
    hints = get_type_hints(fitting[0], include_extras=True)
    return fitting[0](**{name: _restore(hints[name], item) for name, item in value.items()})  # type: ignore[operator]


def _fits(option: Any, values: Mapping[str, Any]) -> bool:
    name = get_type_hints(option).get("name")
    is_named = get_origin(name) is not Literal or values.get("name") in get_args(name)
    names = {field.name for field in fields(option)}
    needed = {field.name for field in fields(option) if field.default is field.default_factory is MISSING}
    return is_named and needed <= values.keys() <= names
