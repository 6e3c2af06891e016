"""A sweep: every job in a folder of its own, a job that cannot be or fails leaves its reason there, the rest go on."""

import json
import sys
import time
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from lockstep.launch import RankFailed
from lockstep.record import METRICS
from lockstep.refusal import Refusal

UNFINISHED = "unfinished.json"
OWN_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"


def in_sweep() -> bool:
    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


def report_unfinished(run_dir: Path, error: Refusal | RankFailed) -> None:
    """Say at once why this job of the sweep has no result, and leave the reason in its folder for the summary.

    Hydra's own sweeper wants no value back and would end the sweep at an error. Others (Optuna and the like) have a way
    to deal with a job that failed: they get the error.
    """
    job = HydraConfig.get()
    status = "refused" if isinstance(error, Refusal) else "failed"
    sys.stdout.flush()
    print(f"job {job.job.num} {status}: {error}", file=sys.stderr, flush=True)
    (run_dir / UNFINISHED).write_text(json.dumps({"status": status, "reason": str(error)}, indent=2) + "\n")
    if job.sweeper._target_ != OWN_SWEEPER:
        raise error


def clear_results(run_dir: Path) -> None:
    """Remove what an earlier run left in the same folder, so that a result there is this run's."""
    for name in (METRICS, UNFINISHED):
        (run_dir / name).unlink(missing_ok=True)


class SweepSummary(Callback):
    """Counts the sweep's jobs at its end. Exit status 1 if one failed, 2 if all were refused."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        self.began = time.time()

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        finished = len(self._written(folder, METRICS))
        statuses = [json.loads(path.read_text())["status"] for path in self._written(folder, UNFINISHED)]
        refused, failed = statuses.count("refused"), statuses.count("failed")
        print(f"\nsweep: {finished} finished, {refused} refused, {failed} failed\n  {folder}", flush=True)
        if failed:
            raise SystemExit(1)
        if refused and not finished:
            raise SystemExit(2)

    def _written(self, folder: Path, name: str) -> list[Path]:
        """The files of that name that this sweep wrote, wherever its launcher ran the jobs."""
        return [path for path in folder.rglob(name) if path.stat().st_mtime >= self.began]
