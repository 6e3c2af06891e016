"""The files of a run's folder; docs/agreement.md has the lines of record.jsonl."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from lockstep.base.config_error import ConfigError
from lockstep.base.files import TIMELINE, save_table, save_text

METRICS = "metrics.json"
CONFIG = "config.yaml"
RECORD = "record.jsonl"
COMPARISON = "comparison.json"
CONFUSION = "confusion.csv"
REPORT = "report.html"
NOTES = "report.json"  # what the page shows beside the other files: seconds of ranks, pictures, the environment
PHASES = ("data", "forward", "backward", "communication", "optimizer", "rest")
"""The phases of a training step, whose seconds curves and report.json have."""
FINGERPRINTED = ("weights", "buffers", "optimizer")  # the tensors of which the record has fingerprints
REPLICATED = "replicated"  # of the weights of which several ranks have a copy, if ranks have parts of others
Metrics = dict[str, str | int | float]
NOT_OF_THE_NET = ("lr", "train_seconds", "samples_per_second", "total_seconds", "max_diff", "best")
"""Floats of metrics.json that do not measure the net; so are all with `_seconds` in their names."""


def net_metrics(metrics: Mapping[str, object]) -> dict[str, float]:
    """Return the losses and metrics of the net, from the content of metrics.json."""
    return {
        name: value
        for name, value in metrics.items()
        if isinstance(value, float) and name not in NOT_OF_THE_NET and "_seconds" not in name
    }


COMMAND = "# command: "
"""Before the first line of config.yaml, which is the words of the command and the keys that a sweep varies, in JSON."""
PREAMBLE = """# `--config-dir FOLDER --config-name config` runs it again
defaults:
  - override hydra/output: lockstep
  - override hydra/help: lockstep
  - override hydra/job_logging: none
  - override hydra/callbacks: lockstep
  - _self_
"""
"""What makes a composed configuration one that Hydra runs."""


def save_config(folder: Path, text: str, words: Sequence[str], swept: Sequence[str]) -> None:
    """Write config.yaml: the composed configuration, behind the command."""
    save_text(folder / CONFIG, f"{COMMAND}{json.dumps([[*words], [*swept]])}\n{PREAMBLE}{text}")


def read_config(folder: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return the configuration of a run, the words of its command, and the keys that a sweep varied.

    A damaged one raises ValueError, TypeError, LookupError, OSError or yaml.YAMLError.
    """
    text = (folder / CONFIG).read_text()
    config = {**yaml.safe_load(text)}
    config.pop("defaults", None)
    first = text.partition("\n")[0]
    words, swept = json.loads(first.removeprefix(COMMAND)) if first.startswith(COMMAND) else ([], [])
    return config, [*map(str, words)], [*map(str, swept)]


def save_confusion(folder: Path, counts: Sequence[Sequence[int]], labels: Sequence[str]) -> None:
    """Write confusion.csv: how often each class (row) of the test split was predicted as each class (column)."""
    columns = [f"predicted {label}" for label in labels]
    columns += ["predicted another"] if counts and len(counts[0]) > len(labels) else []  # numbers that are no class
    rows = zip(labels, counts, strict=True)
    save_table(folder / CONFUSION, [{"true": label, **dict(zip(columns, row, strict=True))} for label, row in rows])


def clear_records(folder: Path, keep_record: bool) -> None:
    """Remove the results of an earlier run in the folder; `keep_record`: the run is resumed."""
    for run in (folder, folder / "lightning", folder / "raw"):
        for name in (METRICS, COMPARISON, CONFUSION, REPORT, TIMELINE, *(() if keep_record else (RECORD, NOTES))):
            (run / name).unlink(missing_ok=True)


@contextmanager
def removed_if_refused(folder: Path) -> Iterator[None]:
    """Remove what a run that is refused before its first step has left in its folder, unless there was one before."""
    runs = (folder / "lightning", folder / "raw", folder)
    existed = (folder / CONFIG).exists()
    try:
        yield
    except ConfigError:
        if not existed and not any((run / name).exists() for run in runs for name in (RECORD, "checkpoints")):
            for run in runs:
                (run / CONFIG).unlink(missing_ok=True)
                shutil.rmtree(run / "tensorboard", ignore_errors=True)
                with suppress(OSError):
                    run.rmdir()
        raise


def run_of(checkpoint: Path) -> Path:
    """Return the folder of the run that wrote a checkpoint, links resolved."""
    return checkpoint.resolve().parents[1]
