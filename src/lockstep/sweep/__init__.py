"""A sweep: every job has its folder; a job that is refused or fails leaves the reason there, and the rest run."""

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from lockstep.build import with_name
from lockstep.config_error import ConfigError
from lockstep.files import save_json
from lockstep.launch.failure import RankFailed
from lockstep.run_files import METRICS
from lockstep.schemas.target import KEY

UNFINISHED = "failure.json"
OWN_SWEEPER = ".BasicSweeper"
"""How the name of the class ends that Hydra itself sweeps by."""


def in_sweep() -> bool:
    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


def report_unfinished(config: DictConfig, run_dir: Path, error: ConfigError | RankFailed) -> None:
    """Say at once why this job of the sweep has no result, and leave the reason in its folder for the table.

    Hydra's own sweeper wants no value back and would end the sweep at an error. Others (Optuna and the like) have a way
    to deal with a job that failed: they get the error.
    """
    job = HydraConfig.get()
    status = "refused" if isinstance(error, ConfigError) else "failed"
    sys.stdout.flush()
    print(f"job {job.job.num} {status}: {error}", file=sys.stderr, flush=True)
    chosen: Any = OmegaConf.to_container(config)
    wanted = {str(key): _named_for_tables(str(key), value) for key, value in chosen.items()}
    left = {"status": status, "reason": str(error), "config": wanted}
    with contextlib.suppress(OSError):  # a full disk may be the reason: the sweep goes on
        save_json(run_dir / UNFINISHED, left)
    if not job.sweeper._target_.endswith(OWN_SWEEPER):
        raise error


def _named_for_tables(group: str, values: Any) -> Any:
    """What was chosen of a group, with the name that tables call it by."""
    named = with_name(group, values)
    if isinstance(named, Mapping) and KEY in named and "name" not in named:
        return {"name": str(named[KEY]).rpartition(".")[2], **named}
    return named


def clear_results(run_dir: Path, keep_metrics: bool) -> None:
    """Remove what an earlier job left in the same folder, so that a result there is this job's."""
    for name in (UNFINISHED,) if keep_metrics else (METRICS, UNFINISHED):
        (run_dir / name).unlink(missing_ok=True)
