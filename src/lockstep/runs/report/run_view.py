"""What the report reads of one run's folder."""

import csv
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from lockstep.base.config_error import as_typed, is_number
from lockstep.base.files import CONF, read_json
from lockstep.plan.schemas.groups import key_of, leaves
from lockstep.runs.compare.recorded_run import RecordedRun
from lockstep.runs.run_files import CONFUSION, NOTES, net_metrics, read_config

STAGES = ("train", "val", "test")
PACKAGE = "# @package "
Rows = list[dict[str, Any]]


class RunView(RecordedRun):
    """A run's files. `summary`: its metadata and results; `notes`: report.json; `words`: of its command."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.summary: dict[str, Any] = {**self.run_metadata, **self.results}
        self.notes = read_json(folder / NOTES)
        self.words = read_config(folder)[1] if self.config else []

    @property
    def work(self) -> str:
        model, data = self.summary.get("model"), self.summary.get("data")
        return f"{model} on {data}" if model else "another program"

    @cached_property
    def epoch_samples(self) -> dict[int, int]:
        lines = groupby(self.steps.values(), lambda line: int(line["epoch"]))
        return {epoch: sum(line["samples"] for line in steps) for epoch, steps in lines}

    @cached_property
    def samples(self) -> dict[str, int]:
        """The samples of each split, as far as they are known."""
        counted = {"train": max(self.epoch_samples.values(), default=0), **self.notes.get("samples", {})}
        tested = sum(sum(counts) for _, counts in self.confusion_rows)
        return {stage: count for stage, count in (counted | ({"test": tested} if tested else {})).items() if count}

    @cached_property
    def confusion_rows(self) -> list[tuple[str, list[int]]]:
        """The rows of confusion.csv: a true class, and its counts by predicted class."""
        with suppress(OSError, ValueError):
            _, *rows = csv.reader((self.folder / CONFUSION).read_text().splitlines())
            return [(name, [*map(int, counts)]) for name, *counts in rows]
        return []

    @cached_property
    def final(self) -> dict[str, float]:
        """The losses and metrics of the last net."""
        return net_metrics(self.results) or (self.validations[-1][1] if self.validations else {})

    @property
    def headline(self) -> str | None:
        """Return the name of the value that the run is judged by, of the test split if there is one."""
        monitor = str(self.results.get("monitor", "")).partition("/")[2]
        for stage in ("test", "val", "train"):
            names = [name for name, value in self.final.items() if re.match(f"{stage}[/_]", name) and is_number(value)]
            if names:
                return min(names, key=lambda name: (name.partition("/")[2] != monitor, "acc" not in name, name))
        return None

    def nets(self) -> Rows:
        """Return a row for each logged value: its split, samples, and the value of the last and of the best net."""
        best_epoch, tests_best = self.results.get("best_epoch"), str(self.config.get("test")) == "best"
        best = next((line for (epoch, _), line in self.lines["validation"].items() if epoch == best_epoch), {})
        is_both, rows = best_epoch == self.results.get("epochs"), []
        stages = [*STAGES, *sorted({name.partition("/")[0] for name in self.final} - {*STAGES})]
        for name in sorted(self.final, key=lambda name: (stages.index(name.partition("/")[0]), name)):
            stage, _, metric = name.rpartition("/")
            is_known = stage != "test" or is_both or not tests_best
            best_value = best.get(name)
            if stage == "test":  # of one of both nets
                best_value = self.final[name] if tests_best or is_both else None
            row = {"split": stage, "metric": metric, "samples": self.samples.get(stage)}
            rows.append({**row, "last": self.final[name] if is_known else None, "best": best_value})
        return rows


def setup_of(view: RunView) -> dict[str, Any]:
    """Return the command, what differs from the defaults, all options, the environment and what identifies the net."""
    typed, defaults = {key_of(word) for word in view.words}, default_options()
    options = {key: value for key, value in leaves(view.config, of_lists=False) if key}
    differing = [
        key
        for key, value in options.items()
        if (key in typed or defaults.get(key) is not None) and value != defaults.get(key)
        if key in typed or (group := key.partition(".")[0]) == key or options.get(group) == defaults.get(group)
    ]
    facts = {key: view.summary.get(key) for key in ("seed", "parameters", "digest")}
    facts |= {"folder": str(view.folder), "git commit": view.summary.get("commit") or view.notes.get("commit") or None}
    words = [word for word in view.words if not word.startswith(("resume=", "ckpt_path="))]
    program = "python train.py" if Path("train.py").is_file() else "lockstep"
    return {
        "command": f"{program} {shlex.join(words)}".strip() if options else "",
        "differs": [(key, as_typed(options[key]), as_typed(defaults.get(key, "–"))) for key in differing],
        "options": [(key, as_typed(value)) for key, value in options.items()],
        "facts": {key: value for key, value in facts.items() if value is not None},
        "environment": view.notes.get("environment", {}),
    }


@cache
def default_options() -> Mapping[str, Any]:
    """Return the options of a command without overrides, by key: those of train.yaml and of its choices."""
    try:
        config = yaml.safe_load((CONF / "train.yaml").read_text())
        for choice in config.pop("defaults"):
            for group, name in choice.items() if isinstance(choice, Mapping) else ():
                path = CONF / group / f"{name}.yaml"
                text = path.read_text() if path.is_file() else ""
                content, first = yaml.safe_load(text) or {}, text.partition("\n")[0]
                package = first.removeprefix(PACKAGE) if first.startswith(PACKAGE) else group
                for part in reversed(package.split(".") if package != "_global_" else ()):
                    content = {part: content}
                config |= content
        options = dict(leaves(config, of_lists=False))  # 1e-3 is a string in YAML 1.1
        numbers = {key: re.fullmatch(r"[\d.]+e-?\d+", str(value)) for key, value in options.items()}
        return {key: float(value) if numbers[key] else value for key, value in options.items()}
    except (OSError, yaml.YAMLError, AttributeError, KeyError):
        return {}
