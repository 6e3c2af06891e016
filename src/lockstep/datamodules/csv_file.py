"""A table in a CSV file: columns of numbers, and a column to predict, of classes or of real numbers."""

import csv
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from lockstep.base.config_error import ConfigError, config_error, option_error, require
from lockstep.datamodules.tensors import STAGES, SplitData, split_rows


class Table(NamedTuple):
    """The rows of a file, each with the number of its line. key: of the setting that names the file, for errors."""

    key: str
    file: str
    header: list[str]
    rows: list[tuple[int, list[str]]]

    def error(self, line: int, reason: str, hint: str) -> ConfigError:
        return config_error(self.key, self.file, f"line {line}{reason}", hint)

    def cells(self, column: str) -> list[str]:
        """Return the text of a column; raise for an empty cell."""
        place = self.header.index(column)
        for line, row in self.rows:
            if not row[place].strip():
                raise self.error(line, f", column {column}: it is empty", "a value there, or leave the line out")
        return [row[place].strip() for _, row in self.rows]

    def numbers(self, columns: Sequence[str]) -> Tensor:
        """Return float64 (rows, columns); raise for a cell that is no finite number, or a column that is not there."""
        if missing := [column for column in columns if column not in self.header]:
            raise self.error(1, f": it has no column {missing[0]}", f"a file with the columns {', '.join(columns)}")
        places = [self.header.index(column) for column in columns]
        values = np.array([[_parsed(float, row[place]) for place in places] for _, row in self.rows], np.float64)
        wrong = np.argwhere(~np.isfinite(values))
        for row, place in wrong[:1].tolist():
            column, (line, texts) = columns[place], self.rows[row]
            text = texts[places[place]]
            reason = f"{text!r} is not a finite number" if text.strip() else "it is empty"
            can_ignore = self.key == "data.file" and len(columns) > 1
            hint = "a number there" + (f", or data.ignore=[{column}] to leave the column out" if can_ignore else "")
            raise self.error(line, f", column {column}: {reason}", hint)
        return torch.from_numpy(values)


class CSV(SplitData):
    """Rows of numbers (n, columns) and their targets: classes, or real numbers (n, 1), which stay as they are.

    Batches have the columns standardised by mean and deviation of the training rows. `state_dict` has these, and so
    has a checkpoint. `sample_shape` and its like are known after `setup`.
    """

    columns: Sequence[str] = ()
    means, deviations = torch.zeros(()), torch.ones(())

    def __init__(
        self,
        file: str,
        target: str,
        batch_size: int = 64,
        ignore: Sequence[str] = (),
        split: str | None = None,
        val_size: float = 0.1,
        test_size: float = 0.1,
        split_seed: int = 0,
        standardize: bool = True,
        classes: bool | None = None,
        delimiter: str = ",",
    ) -> None:
        """Choose the columns of a file, whose first line names them.

        Args:
            target: the column to predict; `ignore`: columns to leave out.
            split: a column of train, val and test. Without it the rows are divided: sizes are samples, or shares below
                1, and `split_seed` another division.
            classes: whether the target is a class; None: if it is a text or an integer.
        """
        super().__init__(batch_size)
        self.save_hyperparameters(logger=False)
        require(len(delimiter) == 1, "data.delimiter", delimiter, "it is one character", "data.delimiter=';'")
        self.file, self.target, self.split, self.delimiter = file, target, split, delimiter
        self.ignore, self.standardize, self.classes = (*ignore,), standardize, classes
        self.sizes, self.split_seed = (val_size, test_size), split_seed

    def setup(self, stage: str | None = None) -> None:
        if self.datasets:
            return
        table = read_table("data.file", self.file, self.delimiter)
        named = [("target", self.target), ("split", self.split), *(("ignore", name) for name in self.ignore)]
        for key, column in named:
            if column is not None and column not in table.header:
                raise option_error(f"data.{key}", column, f"{self.file} has no such column", table.header)
        columns = [name for name in table.header if name not in (self.target, self.split, *self.ignore)]
        require(bool(columns), "data.file", self.file, "it has no column of inputs", "a table with others")
        if not all(columns):
            raise table.error(1, ": a column has no name", "a name there, or data.ignore=[''] to leave it out")
        inputs, targets = table.numbers(columns), self._targets(table)
        rows = self._rows(table)
        if self.standardize:
            train = inputs[rows["train"]]
            constant = train.amax(0) == train.amin(0)
            self.means, self.deviations = train.mean(0), train.std(0, correction=0).masked_fill(constant, 1.0)
        self.columns, self.sample_shape = columns, (len(columns),)
        self.num_classes, self.num_outputs = len(self.class_names), len(self.class_names) or 1
        self.datasets = {name: TensorDataset(inputs[indices], targets[indices]) for name, indices in rows.items()}

    def _targets(self, table: Table) -> Tensor:
        """Return classes (n), and set their names; or real numbers (n, 1)."""
        texts = table.cells(self.target)
        values = [_parsed(int, text) for text in texts]
        if None in values:
            numbers = np.array([_parsed(float, text) for text in texts], np.float64)
            has_real = np.isfinite(numbers[[value is None for value in values]]).any()
            values = texts
        if self.classes is False or (self.classes is None and values is texts and has_real):
            return table.numbers([self.target])
        classes = {value: number for number, value in enumerate(sorted({*values}))}
        self.class_names = tuple(map(str, classes))
        return torch.tensor([classes[value] for value in values])

    def _rows(self, table: Table) -> dict[str, list[int]]:
        """Return the rows of each split."""
        if self.split is None:
            return split_rows(len(table.rows), *self.sizes, self.split_seed)
        rows: dict[str, list[int]] = {stage: [] for stage in STAGES}
        for row, text in enumerate(table.cells(self.split)):
            stage = "val" if text == "validation" else text
            if stage not in rows:
                reason = f", column {self.split}: {text!r} is no split"
                raise table.error(table.rows[row][0], reason, "train, val or test there")
            rows[stage].append(row)
        require(bool(rows["train"]), "data.split", self.split, "no row is for training", "train in some rows")
        return rows

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Standardise the columns, then convert real numbers to the dtype of the module."""
        inputs, *targets = batch
        inputs = (inputs - self.means.to(inputs.device)) / self.deviations.to(inputs.device)
        return super().on_after_batch_transfer([inputs, *targets], dataloader_idx)

    def rows_to_predict(self, file: str) -> list[tuple[str, Tensor]]:
        """Return the rows of another file, which need no target: a name, and the columns of this one in their order."""
        table = read_table("INPUT", file, self.delimiter)
        names = [f"{file}:{line}" for line, _ in table.rows]
        return [*zip(names, table.numbers(self.columns), strict=True)]

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("columns", "class_names", "means", "deviations")}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Standardise as the training of a checkpoint did; raise if the file has other columns or classes."""
        for name in ("columns", "class_names") if self.datasets else ():
            before, now = ([*each] for each in (state_dict[name], getattr(self, name)))
            reason = f"its {name} are {', '.join(now)}, and those of the checkpoint {', '.join(before)}"
            require(before == now, "data.file", self.file, reason, "a file with the same ones")
        for name, value in state_dict.items():
            setattr(self, name, value)


def read_table(key: str, file: str, delimiter: str) -> Table:
    """Return the rows of a file with a header; `key` names it in errors."""
    try:
        with Path(file).open(encoding="utf-8-sig", newline="") as text:
            lines = csv.reader(text, delimiter=delimiter, skipinitialspace=True, strict=True)
            header = [name.strip() for name in next(lines, [])]
            rows = [(lines.line_num, row) for row in lines if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise config_error(key, file, f"it is no CSV file in UTF-8 ({error})", "a table with a header") from None
    table = Table(key, file, header, rows)
    require(bool(rows), key, file, "it has no rows" if header else "it is empty", "a table with a header")
    if repeated := [name for name in header if header.count(name) > 1]:
        raise table.error(1, f": two columns are named {repeated[0]!r}", "other names there")
    for line, row in rows:
        if len(row) != len(header):
            raise table.error(line, f" has {len(row)} cells, and the first {len(header)}", "as many in each line")
    return table


def _parsed(kind: type, text: str) -> Any:
    """Return a text as an int or a float, None if it is none."""
    with suppress(ValueError):
        return kind(text)
    return None
