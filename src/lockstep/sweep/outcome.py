"""The outcome of one job of a sweep, in its folder: metrics.json, or failure.json with the reason."""

import sys
from contextlib import suppress
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from lockstep.config_error import ConfigError
from lockstep.files import save_json
from lockstep.launch.failure import RankFailed
from lockstep.run_files import METRICS

FAILURE = "failure.json"


def in_sweep() -> bool:
    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


def report_unfinished(config: DictConfig, run_dir: Path, error: ConfigError | RankFailed) -> None:
    """Print why a job has no result, write failure.json, and raise `error` for another sweeper than Hydra's own."""
    job = HydraConfig.get()
    status = "refused" if isinstance(error, ConfigError) else "failed"
    sys.stdout.flush()
    print(f"job {job.job.num} {status}: {error}", file=sys.stderr, flush=True)
    with suppress(OSError):  # a full disk may be the reason: the sweep goes on
        failure = {"status": status, "reason": str(error), "words": [*job.overrides.task]}
        save_json(run_dir / FAILURE, {**failure, "config": OmegaConf.to_container(config)})
    if not job.sweeper._target_.endswith(".BasicSweeper"):
        if "\n" in str(error):  # its traceback has been shown
            short = f"job {job.job.num} {status}"
            error = ConfigError(short) if status == "refused" else RankFailed(None, short)
        raise error


def clear_results(run_dir: Path, keep_metrics: bool) -> None:
    """Remove the results of an earlier job in the same folder."""
    for name in (FAILURE,) if keep_metrics else (METRICS, FAILURE):
        (run_dir / name).unlink(missing_ok=True)
