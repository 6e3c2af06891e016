"""The end of a sweep: sweep.csv, sweep.png and the table."""

import csv
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from lockstep.sweep.jobs import jobs_of
from lockstep.sweep.picture import draw
from lockstep.sweep.rows import Row, rows_of
from lockstep.sweep.table import text


class SweepSummary(Callback):
    """Hydra calls it around a sweep. Exit status 1 if a job failed or its engines are apart, 2 if all were refused."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        self.began = time.time()

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        jobs = jobs_of(folder, self.began)
        if not jobs:
            return
        rows = rows_of(jobs)
        save(rows, folder / "sweep.csv")
        draw(rows, jobs, folder / "sweep.png")
        finished = sum(bool(job.results) for job in jobs)
        statuses = [job.unfinished.get("status") for job in jobs]
        refused, failed = statuses.count("refused"), statuses.count("failed")
        counts = f"sweep: {finished} finished, {refused} refused, {failed} failed"
        print(f"\n{text(rows)}\n\n{counts}\n  {folder}", flush=True)
        if failed or any(job.results.get("as_owed") is False for job in jobs):
            raise SystemExit(1)
        if refused and not finished:
            raise SystemExit(2)


def save(rows: Sequence[Row], path: Path) -> None:
    with path.open("w", newline="") as file:
        table = [row.cells() for row in rows]
        writer = csv.DictWriter(file, table[0])
        writer.writeheader()
        writer.writerows(table)
