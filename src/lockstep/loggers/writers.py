"""Lightning loggers that write tables and TensorBoard's files."""

import re
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from lockstep.private_api.tensorboard import add_points, hparams_session
from lockstep.run_label import FOLDER, HyperParameter, plain_hparam

GROUPED = {"lr": "train/lr", "samples_per_second": "work/samples_per_second", "epoch": "work/epoch"}
"""The names in TensorBoard of values without a group. It sorts groups and opens the first two."""


class CSV(CSVLogger):
    """Lightning's table metrics.csv, written at each call; each resume in the run's folder has a folder of its own."""

    def __init__(self, save_dir: str, run_name: str) -> None:
        resumed = re.search(r"from_step_\d+$", run_name)
        super().__init__(save_dir, "csv", resumed[0] if resumed else "", flush_logs_every_n_steps=1)

    def log_hyperparams(self, *_: Any) -> None:
        """No-op: they are in config.yaml."""


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
        """Save: a Trainer calls it after fit and after a test."""
        self.save()

    def close(self, status: str) -> None:
        self.save()
        if self.has_session and status == "success":
            self.writer.file_writer.add_summary(hparams_session(self.options, self.trial)[1])
        self.writer.close()
