"""The outcome of one job of a sweep, in its folder: metrics.json, or failure.json with the reason."""

import sys
from collections.abc import Mapping
from contextlib import suppress
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
from lockstep.schemas.groups import GROUPS
from lockstep.schemas.target import KEY

FAILURE = "failure.json"


def in_sweep() -> bool:
    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


def report_unfinished(config: DictConfig, run_dir: Path, error: ConfigError | RankFailed) -> None:
    """Print why a job of the sweep has no result, and write failure.json for the table.

    Raises:
        ConfigError, RankFailed: `error` itself, for a sweeper that handles failed jobs. Hydra's own would end.
    """
    job = HydraConfig.get()
    status = "refused" if isinstance(error, ConfigError) else "failed"
    sys.stdout.flush()
    print(f"job {job.job.num} {status}: {error}", file=sys.stderr, flush=True)
    values: Any = OmegaConf.to_container(config)
    named = {str(key): _with_any_name(str(key), value) for key, value in values.items()}
    with suppress(OSError):  # a full disk may be the reason: the sweep goes on
        save_json(run_dir / FAILURE, {"status": status, "reason": str(error), "config": named})
    if not job.sweeper._target_.endswith(".BasicSweeper"):
        raise error


def _with_any_name(group: str, values: Any) -> Any:
    """Return the values of a group with the name that tables show: of the option, or of the user's class."""
    if group not in GROUPS or not isinstance(values, Mapping):
        return values
    named = with_name(group, values)
    return {"name": str(named[KEY]).rpartition(".")[2], **named} if KEY in named and "name" not in named else named


def clear_results(run_dir: Path, keep_metrics: bool) -> None:
    """Remove the results of an earlier job in the same folder."""
    for name in (FAILURE,) if keep_metrics else (METRICS, FAILURE):
        (run_dir / name).unlink(missing_ok=True)
