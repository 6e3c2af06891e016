"""The end of a sweep: sweep.csv, report.html and the table; and of each of its jobs."""

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from lockstep.base.config_error import ConfigError, shorten, truncate
from lockstep.base.files import save_json, save_table
from lockstep.base.private_api.hydra import silence_basic_launcher
from lockstep.base.text_table import fitted_text, width_shown
from lockstep.launch.disk import run_lock
from lockstep.launch.failure import RankFailed, print_exit_reason
from lockstep.plan.schemas.groups import short_keys
from lockstep.runs.report import report
from lockstep.runs.run_files import METRICS, REPORT
from lockstep.runs.sweep.jobs import FAILURE, WORLD, SweepRow, best_text, jobs_of, ranking_metric, rows_of
from lockstep.runs.sweep.search import continue_search

MAX_CELL = 72  # characters of a cell; sweep.csv has all of them
HEADINGS = {
    **{"best": "", "epoch_seconds": "s/epoch", "samples_per_second": "samples/s", "speed_up": "speed-up"},
    "max_loss_diff": "max loss diff",
}
FORMATS = {
    **{"epoch_seconds": ".3f", "samples_per_second": ".0f", "speed_up": ".2f", "efficiency": ".2f"},
    "max_loss_diff": ".1e",
}
JOBLIB_REFUSED = (
    "hydra/launcher=joblib: its jobs run at the same time, and each takes all cores and ends without a checkpoint at a "
    "signal; write -m without it for one job after another, or hydra/launcher=slurm."
)


class SweepSummary(Callback):
    """Hydra calls it around a sweep. Exit status 1 if a job failed or its engines differ, 2 if all were refused."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        self.began = time.time()
        launcher = OmegaConf.select(config, "hydra.launcher._target_", throw_on_resolution_failure=False)
        self.locked = ExitStack()  # until the process ends
        try:
            if "hydra_joblib_launcher" in str(launcher):
                raise ConfigError(JOBLIB_REFUSED)
            self.locked.enter_context(run_lock(Path(config.hydra.sweep.dir), "hydra.sweep.dir"))
            continue_search(config.hydra.sweeper)
        except ConfigError as error:  # Hydra would print others of a callback, and go on
            print_exit_reason(str(error), None)
            raise SystemExit(2) from None
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
        save_table(folder / "sweep.csv", [row.cells for row in rows])
        report(folder)
        statuses = [job.failure.get("status", "finished") for job in jobs]
        counts = ", ".join(f"{statuses.count(status)} {status}" for status in ("finished", "refused", "failed"))
        lines = ["", format_table(rows, width_shown()), "", *best_text(jobs, metric), f"sweep: {counts}"]
        print("\n".join([*lines, f"  {folder}: sweep.csv, {REPORT}"]), flush=True)
        if "failed" in statuses or any(job.results.get("within_tolerance") is False for job in jobs):
            raise SystemExit(1)
        if "finished" not in statuses:
            raise SystemExit(2)


def format_table(rows: Sequence[SweepRow], width: int | None = None) -> str:
    """Return the table without empty columns and those of the training split.

    If it is wider than `width` characters, the columns that matter least are left out, and reasons are lines below it.
    """
    columns = [name for name in rows[0].cells if any(row.cells[name] not in (None, "") for row in rows)]
    columns = [name for name in columns if not name.startswith("train_")]
    spaced = {name: name.replace("_", " ", 1) for name in columns if name.startswith(("val_", "test_", "best_"))}
    headings = spaced | HEADINGS | dict(zip(rows[0].varied, short_keys(rows[0].varied), strict=True))
    for dropped in (None, *_least_first(rows, columns)):
        columns = [name for name in columns if name != dropped]
        texts = [[_text(name, row.cells[name]) for name in columns] for row in rows]
        text = fitted_text([headings.get(name, name) for name in columns], texts, width)
        if text.count("\n") == len(rows):
            break
    reasons = [f"job {row.cells['job']} {row.cells['reason']}" for row in rows if row.cells.get("reason")]
    return "\n".join([text, *(truncate(reason, width) for reason in reasons if width and "reason" not in columns)])


def _least_first(rows: Sequence[SweepRow], columns: Sequence[str]) -> list[str]:
    """Return the columns that may be left out, in this order: speed matters if it is compared, else the metrics do."""
    constant = [name for name in WORLD if len({row.cells[name] for row in rows}) == 1]
    metrics = sorted(name for name in columns if name.startswith(("test_", "val_")) and name != rows[0].ranked)
    speed = ["epoch_seconds", "max_loss_diff", "efficiency", "verdict", "samples_per_second"]
    order = [*metrics, *speed] if "speed_up" in columns else [*speed, *metrics]
    return ["reason", *constant, *order]


def _text(name: str, value: object) -> str:
    if value is None:
        return "–"
    text = format(value, FORMATS.get(name, ".4g" if isinstance(value, float) else ""))
    return shorten(" ".join(text.split()), MAX_CELL)  # the ends of two long paths differ


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
