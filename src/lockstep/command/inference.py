"""`lockstep.load`: the trained LightningModule of a run, in evaluation mode."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from lockstep.base.config_error import ConfigError, config_error, errors_as, require, shorten
from lockstep.base.files import absolute, short_path
from lockstep.base.precision import convert, default_dtype
from lockstep.base.random_state import preserve_generators
from lockstep.engine.loaders.source import create_module
from lockstep.plan import schemas
from lockstep.plan.schemas.run import ENGINES
from lockstep.plan.targets.kinds import overrides
from lockstep.runs.checkpoint.content import SECTION, named_as_in
from lockstep.runs.checkpoint.files import BEST, FOLDER, LAST, DamagedCheckpoint, read_checkpoint

HINT = "the folder of a run, or one of its checkpoints"


def load(run: str | os.PathLike[str], device: str | torch.device = "cpu") -> Any:
    """Return the LightningModule of a run in evaluation mode, with its weights and what `on_load_checkpoint` restores.

    `run` is a folder or what `lockstep.run` returned, of which the last weights are loaded (with `test=best` the best
    ones), or one of its checkpoints. Raises ConfigError if there is none, or its code has changed.
    """
    return load_with_plan(run, device)[1]


def load_with_plan(run: str | os.PathLike[str], device: str | torch.device = "cpu") -> tuple[Any, Any]:
    """Return what a checkpoint says of its plan, with its path as `ckpt_path`, and the module as `load` does."""
    path = last = Path(absolute(os.fspath(run)))
    if path.is_dir() or not os.path.lexists(path):
        runs = (path, *(path / engine for engine in ENGINES))  # those of engine=both have folders
        candidates = [run / FOLDER / name for name in (LAST, BEST) for run in runs]
        last = next((candidate for candidate in candidates if os.path.lexists(candidate)), candidates[0])
    reason = f"there is no checkpoint: {short_path(last)} is missing"
    require(os.path.lexists(last), "run", short_path(path), reason, HINT)
    plan, checkpoint = _read(last)
    if plan.test == "best" and last != path:
        plan, checkpoint = _read(last.with_name(BEST))
    module = _restore(plan, checkpoint)
    with errors_as(lambda error: config_error("device", str(device), str(error).partition(". ")[0], "device=cpu")):
        return plan, module.to(device)


def _read(path: Path) -> tuple[Any, Mapping[str, Any]]:
    try:
        checkpoint = read_checkpoint(path)
        saved = checkpoint[SECTION]["plan"]
        targets = {"model": schemas.Module(**saved["model"]), "data": schemas.Data(**saved["data"])}
        return SimpleNamespace(**{**saved, **targets, "ckpt_path": str(path)}), checkpoint
    except (DamagedCheckpoint, ConfigError) as error:
        reason = str(error)
    except (LookupError, TypeError, AttributeError, ValueError, AssertionError, ImportError) as error:
        reason = f"it is no checkpoint of this version ({shorten(str(error))})"
    raise config_error("run", short_path(path), reason, HINT)


def _restore(plan: Any, checkpoint: Mapping[str, Any]) -> Any:
    """Return the module of a plan with the weights of a checkpoint, on the CPU; the generators are preserved."""
    with preserve_generators():
        module = create_module(plan.model, plan.seed)
        if overrides(module, "configure_model"):
            with default_dtype(torch.float32):
                module.configure_model()
    convert(plan, module)
    module.on_load_checkpoint(checkpoint)
    try:
        module.load_state_dict(named_as_in(module, checkpoint["state_dict"]), strict=module.strict_loading)
    except RuntimeError as error:
        differing = " ".join(str(error).partition("\n")[2].split()).rstrip(".")
        reason = f"{plan.model.name} has other weights than it had in this run: {differing}"
        hint = "the code as it was; layers that `setup` adds cannot be loaded"
        raise config_error("run", short_path(str(plan.ckpt_path)), shorten(reason), hint) from None
    return module.eval()
