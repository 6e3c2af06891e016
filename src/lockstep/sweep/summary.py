"""The end of a sweep: sweep.csv, sweep.png and the table."""

import time
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from lockstep.colour import painted
from lockstep.files import save_table
from lockstep.launch.failure import print_exit_reason
from lockstep.private_api.hydra import silence_basic_launcher
from lockstep.sweep.best import best_text, ranking_metric
from lockstep.sweep.jobs import jobs_of
from lockstep.sweep.plot import draw
from lockstep.sweep.progress import SweepProgress
from lockstep.sweep.rows import rows_of
from lockstep.sweep.table import format_table
from lockstep.text_table import width_shown

JOBLIB_REFUSED = (
    "hydra/launcher=joblib: its jobs run at the same time, and each takes all cores and ends without a checkpoint at a "
    "signal; write -m without it for one job after another, or hydra/launcher=slurm."
)


class SweepSummary(Callback):
    """Hydra calls it around a sweep. Exit status 1 if a job failed or its engines differ, 2 if all were refused."""

    progress: SweepProgress | None = None

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        self.began = time.time()
        launcher = OmegaConf.select(config, "hydra.launcher._target_", throw_on_resolution_failure=False)
        if "hydra_joblib_launcher" in str(launcher):
            print_exit_reason(JOBLIB_REFUSED, None)
            raise SystemExit(2)
        self.progress = SweepProgress(config)
        silence_basic_launcher()

    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        if self.progress is not None:  # None in a job of SLURM, which knows nothing of the others
            print(f"\n{self.progress.begin(config.hydra.job.num, config.hydra.overrides.task)}", flush=True)

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        jobs = jobs_of(folder, self.began)
        if not jobs:
            return
        metric = ranking_metric(jobs, OmegaConf.select(config, "hydra.sweeper.direction", throw_on_missing=False))
        rows = rows_of(jobs, metric)
        save_table(folder / "sweep.csv", [row.cells() for row in rows])
        draw(rows, jobs, folder / "sweep.png", metric)
        statuses = [job.failure.get("status", "finished") for job in jobs]
        counts = [f"sweep: {statuses.count('finished')} finished"]
        for status in ("refused", "failed"):
            counts.append(painted(f"{statuses.count(status)} {status}", "red" if status in statuses else None))
        lines = ["", format_table(rows, width_shown()), "", *best_text(jobs, metric), ", ".join(counts), f"  {folder}"]
        print("\n".join(lines), flush=True)
        if "failed" in statuses or any(job.results.get("within_tolerance") is False for job in jobs):
            raise SystemExit(1)
        if "finished" not in statuses:
            raise SystemExit(2)
