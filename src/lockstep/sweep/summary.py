"""The end of a sweep: sweep.csv, sweep.png and the table."""

import time
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from lockstep.files import save_table
from lockstep.launch.failure import print_exit_reason
from lockstep.private_api.hydra import silence_basic_launcher
from lockstep.sweep.best import best_text, ranking_metric
from lockstep.sweep.jobs import jobs_of
from lockstep.sweep.plot import draw
from lockstep.sweep.rows import rows_of
from lockstep.sweep.table import format_table
from lockstep.text_table import width_shown

JOBLIB_REFUSED = (
    "hydra/launcher=joblib: its jobs run at the same time, and each takes all cores and ends without a checkpoint at a "
    "signal; write -m without it for one job after another, or hydra/launcher=slurm."
)


class SweepSummary(Callback):
    """Hydra calls it around a sweep. Exit status 1 if a job failed or its engines differ, 2 if all were refused."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        self.began = time.time()
        launcher = OmegaConf.select(config, "hydra.launcher._target_", throw_on_resolution_failure=False)
        if "hydra_joblib_launcher" in str(launcher):
            print_exit_reason(JOBLIB_REFUSED, None)
            raise SystemExit(2)
        silence_basic_launcher()

    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        job = config.hydra
        if job.mode.name == "MULTIRUN":
            print(f"\njob {job.job.num}: {' '.join(job.overrides.task)}", flush=True)

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        jobs = jobs_of(folder, self.began)
        if not jobs:
            return
        metric = ranking_metric(jobs)
        rows = rows_of(jobs, metric)
        save_table(folder / "sweep.csv", [row.cells() for row in rows])
        draw(rows, jobs, folder / "sweep.png", metric)
        statuses = [job.failure.get("status", "finished") for job in jobs]
        counts = ", ".join(f"{statuses.count(status)} {status}" for status in ("finished", "refused", "failed"))
        lines = ["", format_table(rows, width_shown()), "", *best_text(jobs, metric), f"sweep: {counts}", f"  {folder}"]
        print("\n".join(lines), flush=True)
        if "failed" in statuses or any(job.results.get("within_tolerance") is False for job in jobs):
            raise SystemExit(1)
        if "finished" not in statuses:
            raise SystemExit(2)
