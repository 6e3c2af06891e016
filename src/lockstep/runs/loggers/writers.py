"""Lightning loggers that write tables and TensorBoard's files. `finalize` of a Trainer saves, `close` ends the run."""

import csv
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, TensorBoardLogger

from lockstep.base.private_api.tensorboard import add_points, hparams_session
from lockstep.plan.plan import Plan
from lockstep.plan.run_label import FOLDER, HyperParameter, plain_hparam

GROUPED = {"lr": "train/lr", "samples_per_second": "work/samples_per_second", "epoch": "work/epoch"}
"""The names in TensorBoard of values without a group. It sorts groups and opens the first two."""
COLUMNS = ("epoch", "lr", "samples_per_second", "step", "train/loss")
"""The first columns of a table; others are added when they are logged."""


def version(resume: bool, steps: int) -> str:
    """Return the subfolder of a table: one for each resume in the run's folder."""
    return f"from_step_{steps + 1}" if resume and steps else ""


class CSVWriter(Logger):
    """Curves as a table, metrics.csv: a row for each call, which is flushed, and a column for each name."""

    name, version = "csv", ""

    def __init__(self, plan: Plan, steps: int) -> None:
        super().__init__()
        self.path = Path(plan.run_dir) / "csv" / version(plan.resume, steps) / "metrics.csv"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._open([*COLUMNS], [])

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        if new := sorted(metrics.keys() - set(self.writer.fieldnames)):
            self.file.close()
            with self.path.open(newline="") as file:
                rows = list(csv.DictReader(file))
            self._open([*self.writer.fieldnames, *new], rows)
        values = {name: value if name == "epoch" else float(value) for name, value in metrics.items()}
        self.writer.writerow({**values, "step": step or 0})
        self.file.flush()

    def log_hyperparams(self, params: Any, *_args: Any, **_options: Any) -> None:
        """No-op: they are in config.yaml."""

    def close(self, status: str) -> None:
        self.file.close()

    def _open(self, columns: list[str], rows: list[dict[str, str]]) -> None:
        self.file = self.path.open("w", newline="")
        self.writer = csv.DictWriter(self.file, columns)
        self.writer.writeheader()
        self.writer.writerows(rows)


class TensorBoardWriter(TensorBoardLogger):
    """Curves, texts and pictures for TensorBoard; `writer` is torch's SummaryWriter.

    Hyper-parameters are written at the first flush: a module has added its own by then. TensorBoard itself lists those
    that differ among runs first, with the last point of each curve.
    """

    def __init__(self, folder: Path, hparams: Mapping[str, HyperParameter], resumed_at: int | None = None) -> None:
        """Write events to a folder. `resumed_at`: the step after which points of an earlier file are hidden."""
        from torch.utils.tensorboard import SummaryWriter

        super().__init__(str(folder.parents[1]), name=FOLDER, version="", default_hp_metric=False)
        purge_step = None if resumed_at is None else resumed_at + 1
        self.writer: Any = SummaryWriter(str(folder), purge_step=purge_step, flush_secs=1)
        self.epoch_at: int | None = -1
        self.options, self.has_session = dict(hparams), False
        self.trial = f"{folder.name}  {folder.parent}"  # what a table cuts is the path

    @property
    def experiment(self) -> Any:
        return self.writer

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add points. The epoch, which comes with each call, has one point a step."""
        repeated = {"epoch"} if self.epoch_at == step else set()
        values = {GROUPED.get(name, name): float(metrics[name]) for name in metrics if name not in repeated}
        add_points(self.writer, values, step or 0)
        self.epoch_at = step if "epoch" in metrics else self.epoch_at

    def log_hyperparams(self, params: Any, *_args: Any, **_options: Any) -> None:
        params = vars(params) if isinstance(params, Namespace) else params
        self.options |= {name: plain_hparam(value) for name, value in params.items()}

    def save(self) -> None:
        if self.options and not self.has_session:
            self.has_session = True
            self.writer.file_writer.add_summary(hparams_session(self.options, self.trial)[0])
        self.writer.flush()

    def finalize(self, status: str) -> None:
        self.save()

    def close(self, status: str) -> None:
        self.save()
        if self.has_session and status == "success":
            self.writer.file_writer.add_summary(hparams_session(self.options, self.trial)[1])
        self.writer.close()
