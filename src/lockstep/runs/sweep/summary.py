"""The end of a sweep: sweep.csv, report.html and the table; and of each of its jobs. A search by Optuna goes on."""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from math import nan
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, read_write

from lockstep.base.config_error import ConfigError, config_error, errors_as, require, shorten
from lockstep.base.files import save_json, save_table
from lockstep.base.text_table import columns_text, short_text
from lockstep.launch.disk import run_lock
from lockstep.launch.failure import RankFailed, print_exit_reason
from lockstep.plan.schemas.groups import better, short_keys
from lockstep.runs.report import report
from lockstep.runs.report.jobs import jobs_page
from lockstep.runs.run_files import METRICS, REPORT, net_metrics
from lockstep.runs.sweep.jobs import FAILURE, LAYOUT, SweepRow, best_text, jobs_of, ranking_metric, rows_of

MAX_CELL = 72  # characters of a cell, and of a reason; sweep.csv has all of them
HEADINGS = {"best": "", "samples_per_second": "samples/s", "speed_up": "speed-up"}


def direction_of(metric: str | None) -> str:
    """Return the direction of a search by its metric, for conf/hydra/sweeper/search.yaml."""
    return "minimize" if metric and better(metric) == "min" else "maximize"


OmegaConf.register_new_resolver("direction_of", direction_of, replace=True)


class SweepSummary(Callback):
    """Hydra calls it around a sweep. Exit status 1 if a job failed or its engines differ, 2 if all were refused."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        self.began = time.time()
        launcher = OmegaConf.select(config, "hydra.launcher._target_", throw_on_resolution_failure=False)
        self.locked = ExitStack()  # until the process ends
        try:
            if "hydra_joblib_launcher" in str(launcher):
                reason = "each of its jobs would take all cores at the same time"
                raise config_error("hydra/launcher", "joblib", reason, "-m without it, or hydra/launcher=slurm")
            self.locked.enter_context(run_lock(Path(config.hydra.sweep.dir), "hydra.sweep.dir"))
            continue_search(config.hydra.sweeper)
        except ConfigError as error:  # Hydra would print others of a callback, and go on
            print_exit_reason(str(error), None)
            raise SystemExit(2) from None

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        jobs = jobs_of(folder, self.began)
        if not jobs:
            return
        metric = ranking_metric(jobs)
        rows = rows_of(jobs, metric)
        save_table(folder / "sweep.csv", [row.cells for row in rows])
        report(folder, content=lambda: jobs_page(folder, jobs, rows=rows))
        statuses = [job.failure.get("status", "finished") for job in jobs]
        counts = ", ".join(f"{statuses.count(status)} {status}" for status in ("finished", "refused", "failed"))
        lines = ["", format_table(rows), "", *best_text(jobs, metric), f"sweep: {counts}"]
        print("\n".join([*lines, f"  {folder}: sweep.csv, {REPORT}"]), flush=True)
        if "failed" in statuses or any(job.results.get("within_tolerance") is False for job in jobs):
            raise SystemExit(1)
        if "finished" not in statuses:
            raise SystemExit(2)


def format_table(rows: Sequence[SweepRow]) -> str:
    """Return the table of what varies, the ranked metric, and speeds or else the test; then the reasons of failures."""
    cells, varied, ranked = rows[0].cells, rows[0].varied, rows[0].ranked
    world = [name for name in LAYOUT if len({row.cells[name] for row in rows}) > 1]
    tested = [name for name in cells if name.startswith("test_") and name != ranked]
    if any(row.cells.get("speed_up") for row in rows):
        tested = []  # for which a line has no room
    names = ["job", "best", *world, *varied, ranked, "samples_per_second", "speed_up", "verdict", *tested]
    names = [name for name in names if any(row.cells.get(name) not in (None, "") for row in rows)]
    headings = dict(zip(varied, short_keys(varied), strict=True)) | HEADINGS
    titles = [headings.get(name, name.replace("_", " ", 1)) for name in names]
    table = columns_text(titles, [[_text(name, row.cells[name]) for name in names] for row in rows])
    reasons = [f"job {row.cells['job']} {row.cells['reason']}" for row in rows if row.cells.get("reason")]
    return "\n".join([table, *(shorten(reason, MAX_CELL) for reason in reasons)])


def _text(name: str, value: object) -> str:
    if value is None:
        return "–"
    formats = {"samples_per_second": ".0f", "speed_up": ".2f"}
    text = format(value, formats[name]) if name in formats else short_text(value)
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
        raise error


def clear_results(run_dir: Path, keep_metrics: bool) -> None:
    """Remove the results of an earlier job in the same folder."""
    for name in (FAILURE,) if keep_metrics else (METRICS, FAILURE):
        (run_dir / name).unlink(missing_ok=True)


def value_of_trial(metric: str | None, metrics: Mapping[str, Any], sweeper: DictConfig) -> float | None:
    """Return the `optimized_metric`, or else that of best.ckpt: its negative if the search's direction is another."""
    direction = str(sweeper.get("direction", "maximize"))
    if metric is None:
        is_fitting = str(metrics.get("mode")) == direction[:3]
        return float(metrics.get("best", nan)) * (1 if is_fitting else -1)
    logged = [*net_metrics(metrics), "samples_per_second"]
    known = metric in metrics or "direction" not in sweeper  # other sweepers do without
    require(known, "optimized_metric", metric, "the run has no such value", f"one of {', '.join(logged)}")
    return metrics.get(metric)


def continue_search(sweeper: DictConfig) -> None:
    """Create the database of a search; leave out the trials that it has already, and what they have drawn."""
    storage, name = sweeper.get("storage"), sweeper.get("study_name")
    if not isinstance(storage, str):
        return
    from optuna.storages import RDBStorage
    from optuna.trial import TrialState

    hint = "hydra.sweeper.storage=sqlite:///FILE.db"
    with errors_as(lambda error: config_error("hydra.sweeper.storage", storage, " ".join(str(error).split()), hint)):
        # without autocommit Optuna 2 and SQLAlchemy 2 lose the version of the tables
        database = RDBStorage(storage, engine_kwargs={"isolation_level": "AUTOCOMMIT"})
    exists = name in {study.study_name for study in database.get_all_study_summaries()}
    trials = database.get_all_trials(database.get_study_id_from_name(str(name))) if exists else []
    finished = sum(trial.state is TrialState.COMPLETE for trial in trials)
    with read_write(sweeper):
        sweeper.n_trials = max(0, sweeper.n_trials - finished)
        print(f"{storage} has {finished} trials of {name}, {sweeper.n_trials} are to come", flush=True)
        if isinstance(sweeper.sampler.get("seed"), int):
            sweeper.sampler.seed += len(trials)  # it would draw the same values again
