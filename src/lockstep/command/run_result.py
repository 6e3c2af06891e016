"""What `lockstep.run` returns: the metrics of a run, its folder, its history and its net."""

from importlib.util import find_spec
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from lockstep.runs.run_files import RECORD, Metrics
from lockstep.runs.run_summary import summary_rows


class RunResult(dict[str, str | int | float]):
    """The content of metrics.json, as a dict; its `repr` is the summary of the run.

    folder: of the run. test: the plan's: whether the last net was tested, or the best one.
    checkpoint: the one that a run with `train=false` tested.
    """

    def __init__(self, metrics: Metrics, folder: Path, test: bool | str = False, checkpoint: str | None = None) -> None:
        super().__init__(metrics)
        self.folder, self.test, self.checkpoint = folder, test, checkpoint

    @property
    def history(self) -> Any:
        """Return a column for each value of an epoch: a pandas.DataFrame if pandas is installed, else NumPy arrays.

        `epoch`, from 1; `train/loss`, the mean over the samples of the epoch; `lr`, of its last step; and what was
        validated or logged at its end. NaN where an epoch has no such value. Of `engine=both` those of Lightning's run.
        """
        import numpy as np

        rows = self._epochs()
        names = dict.fromkeys(name for row in rows for name in row)
        types = {"epoch": np.int64}
        columns = {name: np.array([row.get(name) for row in rows], types.get(name, np.float64)) for name in names}
        if find_spec("pandas") is None:
            return columns
        import pandas as pd

        return pd.DataFrame(columns)

    def net(self, device: str = "cpu") -> Any:
        """Return the trained net, or the one that was tested, as `lockstep.load` does."""
        from lockstep.command.inference import load  # with torch

        return load(self.checkpoint or self.folder, device)

    def _epochs(self) -> list[dict[str, Any]]:
        """Return a row for each epoch of the record, with its latest values."""
        from lockstep.runs.compare import RecordedRun

        folder = self.folder if (self.folder / RECORD).is_file() else self.folder / "lightning"
        if not (folder / RECORD).is_file():
            return []
        run, rows = RecordedRun(folder), dict[int, dict[str, Any]]()
        for epoch, steps in groupby(run.steps.values(), itemgetter("epoch")):
            lines = [*steps]
            counted = [line for line in lines if line.get("loss_sum")]  # 0 of a module that steps its optimizers itself
            rows[epoch] = {"epoch": epoch}
            if counted:
                total, samples = (sum(line[name] for line in counted) for name in ("loss_sum", "samples"))
                rows[epoch]["train/loss"] = total / samples
            rows[epoch]["lr"] = lines[-1]["lr"]
        for (epoch, _), line in run.lines["validation"].items():
            rows.setdefault(epoch, {}).update({name: line[name] for name in line if not name.startswith("after_")})
        return [rows[epoch] for epoch in sorted(rows)]

    def __repr__(self) -> str:
        verdict = {"both": str(self["verdict"])} if "verdict" in self else {}
        rows = {**summary_rows(self, self.test), **verdict, "folder": str(self.folder)}
        return "\n".join(f"{name:<6}  {text}" for name, text in rows.items())
