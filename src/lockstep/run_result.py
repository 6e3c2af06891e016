"""What `lockstep.run` returns: the metrics of a run, its folder, its history and its net."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lockstep.run_files import RECORD, Metrics
from lockstep.run_summary import summary_rows


class RunResult(dict[str, str | int | float]):
    """The content of metrics.json, as a dict; its `repr` is the summary of the run.

    folder: of the run. test: the plan's: whether the last net was tested, or the best one.
    checkpoint: the one that a run with `train=false` tested.
    """

    def __init__(self, metrics: Metrics, folder: Path, test: bool | str = False, checkpoint: str | None = None) -> None:
        super().__init__(metrics)
        self.folder, self.test, self.checkpoint = folder, test, checkpoint

    @property
    def metrics(self) -> Metrics:
        """Return the content of metrics.json."""
        return dict(self)

    @property
    def history(self) -> Any:
        """Return a column for each value of an epoch: a pandas.DataFrame if pandas is installed, else NumPy arrays.

        `epoch`, from 1; `train/loss`, the mean over the samples of the epoch; `lr`, of its last step; and what was
        validated or logged at its end. NaN where an epoch has no such value.
        """
        return _columns(_epochs(self._record()))

    def net(self, device: str = "cpu") -> Any:
        """Return the trained net, or the one that was tested, as `lockstep.load` does."""
        from lockstep.inference import load  # with torch

        return load(self.checkpoint or self.folder, device)

    def _record(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the lines of the record: of `engine=both` those of Lightning's run."""
        folder = self.folder if (self.folder / RECORD).is_file() else self.folder / "lightning"
        if (folder / RECORD).is_file():
            with (folder / RECORD).open() as lines:
                for line in lines:
                    yield from json.loads(line).items()

    def __repr__(self) -> str:
        verdict = {"both": str(self["verdict"])} if "verdict" in self else {}
        rows = {**summary_rows(self, self.test), **verdict, "folder": str(self.folder)}
        return "\n".join(f"{name:<6}  {text}" for name, text in rows.items())


def _epochs(record: Iterator[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return a row for each epoch, with its latest values."""
    rows: dict[int, dict[str, Any]] = defaultdict(dict)
    sums: dict[int, list[float]] = defaultdict(lambda: [0.0, 0])
    for kind, fields in record:
        if kind == "step":
            row, total = rows[fields["epoch"]], sums[fields["epoch"]]
            row["epoch"] = fields["epoch"]
            if fields.get("loss_sum"):  # 0 of a module that steps its optimizers itself
                total[0] += fields["loss_sum"]
                total[1] += fields["samples"]
                row["train/loss"] = total[0] / total[1]
            row["lr"] = fields["lr"]
        elif kind == "validation":
            rows[fields["epoch"]] |= {name: fields[name] for name in fields if not name.startswith("after_")}
    return [rows[epoch] for epoch in sorted(rows)]


def _columns(rows: list[dict[str, Any]]) -> Any:
    import numpy as np

    names = dict.fromkeys(name for row in rows for name in row)
    types = {"epoch": np.int64}
    columns = {name: np.array([row.get(name) for row in rows], types.get(name, np.float64)) for name in names}  # or NaN
    if find_spec("pandas") is None:
        return columns
    import pandas as pd

    return pd.DataFrame(columns)
