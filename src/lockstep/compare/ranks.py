"""Fingerprints of each rank's memory: whether the ranks of a run agree, and two runs where bits are expected to."""

from typing import Any

from lockstep.compare.leaves import MISSING, compare_values
from lockstep.compare.recorded_run import RecordedRun
from lockstep.compare.verdict import Comparison
from lockstep.run_files import FINGERPRINTED, RECORD

At = tuple[int, int]
"""Epoch and step."""


def compare_ranks(comparison: Comparison, left: RecordedRun, right: RecordedRun, order: int) -> None:
    """Compare all fingerprints; `order`: when they are taken within a step."""
    for run in (left, right):
        for at, line in sorted(run.fingerprints.items()):
            _in_step(comparison, run, at, line, order)
    for at in _shared(left, right):
        for kind in FINGERPRINTED:
            a, b = _first_difference(*(run.fingerprints.get(at, {}).get(kind) for run in (left, right)))
            compare_values(comparison, f"{RECORD}:fingerprint.{kind}", a, b, f"{_where(at)}, {kind}", (at[1], order))


def _in_step(comparison: Comparison, run: RecordedRun, at: At, line: dict[str, Any], order: int) -> None:
    """All ranks hold the same weights, optimizer state and buffers, unless each rank has its own, or a shard."""
    for kind in FINGERPRINTED:
        if run.run_metadata.get("per_rank_buffers", True) if kind == "buffers" else line.get("sharded", False):
            continue
        held = line.get(kind) or [MISSING]
        odd = next((rank for rank, own in enumerate(held) if own != held[0]), 0)
        where = f"{_where(at)}, {kind} of ranks 0 and {odd} in {run.folder}"
        comparison.of("ranks in step").add(held[0], held[odd], where, (at[1], order))


def _shared(left: RecordedRun, right: RecordedRun) -> list[At]:
    """Where both runs have fingerprints, or one has and both should: at the ends of the epochs that both have."""
    last = dict(sorted(left.steps.keys() & right.steps.keys()))  # of an epoch the largest step stays
    either = left.fingerprints.keys() | right.fingerprints.keys()
    both = left.fingerprints.keys() & right.fingerprints.keys()
    return sorted(both | (either & set(last.items())))


def _first_difference(a: Any, b: Any) -> tuple[str, str]:
    """The first ranks' fingerprints that differ, or those of all, in short."""
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for rank, (one, other) in enumerate(zip(a, b, strict=True)):
            if one != other:
                return f"rank {rank} {one}", f"rank {rank} {other}"
        return "", ""
    return tuple(MISSING if own is None else f"{len(own)} ranks" for own in (a, b))  # type: ignore[return-value]


def _where(at: At) -> str:
    return f"epoch {at[0]}, step {at[1]}"
