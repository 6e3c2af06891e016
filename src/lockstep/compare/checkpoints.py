"""The checkpoints of two runs."""

from collections.abc import Mapping
from typing import Any

from lockstep.compare.comparison import Comparison, When
from lockstep.compare.record_lines import Runs
from lockstep.compare.recorded_run import LAST, RecordedRun, flattened
from lockstep.compare.values import compare_all

KEPT = ("best.ckpt", "previous.ckpt", f"{LAST}:lockstep.best")
"""What depends on the metric that is monitored and on how often a run saves."""


def compare_files(comparison: Comparison, runs: Runs, when: When) -> None:
    """Compare which files there are, and the contents of checkpoints of equal positions.

    Each checkpoint is read once.
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


def _checkpoint_values(comparison: Comparison, run: RecordedRun, other: RecordedRun) -> dict[str, Any]:
    """Return the values in the checkpoints that both runs have, and why one cannot be read."""
    values: dict[str, Any] = {}
    for name, checkpoint in run.checkpoints.items():
        partner = other.checkpoints.get(name)
        if isinstance(checkpoint, str):
            values[f"{name}:"] = f"{checkpoint} ({run.folder})"
        elif isinstance(partner, Mapping):
            content = checkpoint
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
