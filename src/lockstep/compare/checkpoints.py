"""The checkpoints of two runs; and whether a run's record, metrics and last checkpoint agree with each other."""

from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.compare.comparison_rules import ITSELF
from lockstep.compare.leaves import BEFORE, MISSING, compare_leaves
from lockstep.compare.recorded_run import CHECKPOINTS, RecordedRun, flattened
from lockstep.compare.verdict import Comparison
from lockstep.record.digest import digest
from lockstep.record.file import Damaged, RecordOffset, read_lines
from lockstep.run_files import METRICS, RECORD

LAST = CHECKPOINTS[0]
POSITION = "lockstep.position"


def compare_files(comparison: Comparison, left: RecordedRun, right: RecordedRun, when: tuple[float, float]) -> None:
    """Compare which files are there, and what checkpoints of equal positions hold.

    Each checkpoint's file is read once.
    """
    runs = left, right
    both = [name for name in CHECKPOINTS if all(isinstance(run.checkpoints.get(name), Mapping) for run in runs)]
    alike = [name for name in both if name == LAST or _position(left, name) == _position(right, name)]
    for name in both:
        if name not in alike:
            comparison.leave_out("what a best or previous checkpoint of another position holds", f"{name}:*")
    a, b = ({**run.files(), **dict(_leaves(run, both, alike))} for run in runs)
    for side in (a, b):
        for key in [key for key in side if _may_differ(key, left, right)]:
            comparison.leave_out("a best or previous checkpoint that may be of other epochs", key)
            del side[key]
    compare_leaves(comparison, a, b, when)
    for run in runs:
        _agrees_with_itself(comparison, run, when)


def _leaves(run: RecordedRun, both: list[str], alike: list[str]) -> Iterator[tuple[str, Any]]:
    """Of the checkpoints that both runs have, only the position of those not `alike`; or what is wrong with one.

    The last one's weights are compared with the run's own record, and the records with each other.
    """
    for name, checkpoint in run.checkpoints.items():
        if isinstance(checkpoint, str):
            yield f"{name}:", f"{checkpoint} ({run.folder})"
        elif name in alike:
            state = checkpoint["state_dict"]
            content = {**checkpoint, "state_dict": dict.fromkeys(state, "there") if name == LAST else state}
            yield from ((f"{name}:{key}", value) for key, value in flattened(content))
        elif name in both:
            yield from ((f"{name}:{POSITION}.{key}", value) for key, value in _position(run, name).items())


def _position(run: RecordedRun, name: str) -> Mapping[str, int]:
    position: Mapping[str, int] = run.checkpoints[name].get("lockstep", {}).get("position", {})
    return position


def _may_differ(key: str, left: RecordedRun, right: RecordedRun) -> bool:
    """Best and previous checkpoints depend on the metric that is monitored and on how often a run saves."""
    if not (key.endswith(":") or f":{POSITION}" in key or key.startswith(LAST)):
        return False
    config = left.config, right.config
    elsewhere = any(own.get("ckpt_path") is not None and not own.get("resume") for own in config)
    monitor, every = (
        [own.get("checkpoint", {}).get(option) for own in config] for option in ("monitor", "every_n_steps")
    )
    if key.startswith(("best.ckpt", f"{LAST}:lockstep.best")):
        return elsewhere or monitor[0] != monitor[1]
    return key.startswith("previous.ckpt") and (elsewhere or every[0] != every[1])


def _agrees_with_itself(comparison: Comparison, run: RecordedRun, when: tuple[float, float]) -> None:
    """Compare what a run says twice: its plan in record and metrics, its end in record, metrics and last checkpoint."""
    see = comparison.of(ITSELF).add
    for key in run.run_metadata.keys() & run.results.keys():
        see(run.run_metadata[key], run.results[key], f"{run.folder}, {key} in {RECORD} and in {METRICS}", BEFORE)
    weights = run.weights
    if not weights or not run.tensors:
        return
    section = run.last.get("lockstep", {})
    for name in {**weights, **run.tensors}:
        own = digest({name: weights[name]}) if name in weights else MISSING
        see(own, run.tensors.get(name, MISSING), f"{run.folder}, {name} in {LAST} and in {RECORD}", when)
    if "digest" in run.results:
        see(digest(weights), run.results["digest"], f"{run.folder}, digest of {LAST} and in {METRICS}", when)
    if "record" in section:
        mark = RecordOffset(section["record"], section["record_size"], section["record_sha256"])
        lines = "there"
        try:
            read_lines(run.folder / RECORD, mark)
        except Damaged as damaged:
            lines = f"the record {damaged}"
        see(lines, "there", f"{run.folder}, the lines that {LAST} counts", when)
