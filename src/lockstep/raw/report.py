"""What rank 0 shows and logs: an epoch's line or bar, curves for TensorBoard or a CSV file under Lightning's names."""

import csv
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Never

from tqdm import tqdm

from lockstep.progress import Points, csv_version, epoch_line
from lockstep.session import Session
from lockstep.sums.running import BatchStats, RunningSums

COLUMNS = ("epoch", "lr", "samples_per_second", "step", "train/loss")
"""And what the objective measures in validation and test."""


class Report:
    """Every rank has one, because a loss over all ranks takes all of them; rank 0 alone shows and writes.

    Points behind the step at which training begins are of training that was lost and is done anew.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.plan = plan = session.plan
        self.shows = session.context.rank == 0
        folder, step = Path(plan.run_dir), session.start.at.steps
        self.bar: tqdm[Never] | None = None
        self.writer: Any = None  # a SummaryWriter, imported only where one is wanted
        self.rows: csv.DictWriter[str] | None = None
        if self.shows and plan.logger.name == "tensorboard":
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1 if plan.resume else None)
            self.points = Points(self.writer)
        elif self.shows and plan.logger.name == "csv":
            table = folder / "csv" / csv_version(plan.resume, step) / "metrics.csv"
            table.parent.mkdir(parents=True, exist_ok=True)
            self.file = table.open("w", newline="")
            self.rows = csv.DictWriter(
                self.file, (*COLUMNS, *plan.objective.names("val"), *plan.objective.names("test"))
            )
            self.rows.writeheader()

    def begin(self, epoch: int, batches: int, done: int) -> None:
        """An epoch begins, or goes on where so many of its batches are done."""
        self.session.curve.resume(self.session.curve.sums if done else RunningSums(self.plan.objective))
        if self.shows and sys.stdout.isatty():
            name = f"epoch {epoch}/{self.plan.max_epochs}"
            self.bar = tqdm(total=batches, initial=done, desc=name, mininterval=0.2, leave=False)

    def batch(self, stats: BatchStats, step: int, rate: float | None) -> None:
        """A batch is done, and if there is a rate, optimizer step `step`. Every N steps: a point on each curve."""
        if self.bar is not None:
            self.bar.update()
        if self.plan.logger.name == "none":
            return
        self.session.curve.add(stats)
        if rate is not None and step % self.plan.log_every_n_steps == 0:
            self.log(self.session.curve.point(rate), step)

    def epoch_line(self, epoch: int, metrics: Mapping[str, float], seconds: float) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None
        if self.shows:
            print(epoch_line(epoch, self.plan.max_epochs, metrics, seconds), flush=True)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """A point on the curve of each value, at an optimizer step."""
        if self.writer is not None:
            self.points.add(values, step)
        if self.rows is not None:
            self.rows.writerow({**values, "step": step})
            self.file.flush()

    def flush(self) -> None:
        """What has been logged, onto the disk: a checkpoint is about to say that it is."""
        if self.writer is not None:
            self.points.flush()

    def close(self) -> None:
        """Hyper-parameters together with the final metrics: TensorBoard shows nothing for either alone."""
        if self.writer is not None:
            from torch.utils.tensorboard.summary import hparams

            self.points.hand_over()
            final = {f"final/{name}": value for name, value in self.session.measured.results.items()}
            for summary in hparams(self.session.heading, final):  # type: ignore[no-untyped-call]
                self.writer.file_writer.add_summary(summary)
            for tag, value in final.items():
                self.writer.add_scalar(tag, value, 0)
            self.writer.close()
        if self.rows is not None:
            self.file.close()
