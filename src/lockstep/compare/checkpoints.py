"""The checkpoints of two runs; and whether a run's record, metrics and last checkpoint agree with each other."""

from collections.abc import Mapping
from typing import Any

from lockstep.compare.comparison import Comparison, When
from lockstep.compare.comparison_rules import WITH_ITSELF
from lockstep.compare.record_lines import Runs
from lockstep.compare.recorded_run import LAST, RecordedRun, flattened
from lockstep.compare.values import BEFORE, MISSING, compare_all
from lockstep.record.digest import digest
from lockstep.record.file import DamagedRecord, RecordOffset, read_lines
from lockstep.run_files import METRICS, RECORD

KEPT = ("best.ckpt", "previous.ckpt", f"{LAST}:lockstep.best")
"""What depends on the metric that is monitored and on how often a run saves."""


def compare_files(comparison: Comparison, runs: Runs, when: When) -> None:
    """Compare which files there are, and the contents of checkpoints of equal positions.

    Each checkpoint is read once. The last one's weights are compared with the run's record, and the records with each
    other.
    """
    left, right = runs
    a, b = (
        {**run.files(), **_checkpoint_values(comparison, run, other)} for run, other in ((left, right), (right, left))
    )
    if _saving(left) != _saving(right):
        for side in (a, b):
            for key in [key for key in side if key.startswith(KEPT)]:
                comparison.leave_out("a best or previous checkpoint that may be of other epochs", key)
                del side[key]
    compare_all(comparison, a, b, when)
    for run in runs:
        _compare_with_itself(comparison, run, when)


def _checkpoint_values(comparison: Comparison, run: RecordedRun, other: RecordedRun) -> dict[str, Any]:
    """Return the values in the checkpoints that both runs have, and why one cannot be read."""
    values: dict[str, Any] = {}
    for name, checkpoint in run.checkpoints.items():
        partner = other.checkpoints.get(name)
        if isinstance(checkpoint, str):
            values[f"{name}:"] = f"{checkpoint} ({run.folder})"
        elif isinstance(partner, Mapping):
            content = {key: value for key, value in checkpoint.items() if (name, key) != (LAST, "state_dict")}
            if name != LAST and _position(checkpoint) != _position(partner):
                comparison.leave_out("what a best or previous checkpoint of another position holds", f"{name}:*")
                content = {"lockstep": {"position": _position(checkpoint)}}
            values |= {f"{name}:{key}": value for key, value in flattened(content)}
    return values


def _position(checkpoint: Mapping[str, Any]) -> Mapping[str, int]:
    position: Mapping[str, int] = checkpoint.get("lockstep", {}).get("position", {})
    return position


def _saving(run: RecordedRun) -> object:
    """Return which checkpoints a run keeps; a run that began from another's checkpoint has only its own epochs."""
    config = run.config
    options = config.get("checkpoint", {})
    elsewhere = config.get("ckpt_path") if not config.get("resume") else None
    return options.get("monitor"), options.get("every_n_steps"), elsewhere


def _compare_with_itself(comparison: Comparison, run: RecordedRun, when: When) -> None:
    """Compare what a run says twice: its plan in record and metrics, its end in record, metrics and last checkpoint."""
    add = comparison.quantity(WITH_ITSELF).add
    for key in run.run_metadata.keys() & run.results.keys():
        where = f"{run.folder}, {key} in {RECORD} and in {METRICS}"
        add(run.run_metadata[key], run.results[key], where, BEFORE)
    recorded = {name: line["digest"] for name, line in run.lines["tensor"].items()}
    if not run.weights or not recorded:
        return
    for name in {**run.weights, **recorded}:
        saved = digest({name: run.weights[name]}) if name in run.weights else MISSING
        add(saved, recorded.get(name, MISSING), f"{run.folder}, {name} in {LAST} and in {RECORD}", when)
    if "digest" in run.results:
        add(digest(run.weights), run.results["digest"], f"{run.folder}, digest of {LAST} and in {METRICS}", when)
    section = run.last.get("lockstep", {})
    if "record" in section:
        offset = RecordOffset(section["record"], section["record_size"], section["record_sha256"])
        state = "there"
        try:
            read_lines(run.folder / RECORD, offset)
        except DamagedRecord as damaged:
            state = f"the record {damaged}"
        add(state, "there", f"{run.folder}, the lines that {LAST} counts", when)
