"""Assertions about two runs, by what `compare` says of their folders."""

from pathlib import Path

from lockstep.compare import compare


def require_identical(left: Path, right: Path) -> None:
    comparison = compare(left, right)
    assert comparison.verdict == "identical", comparison.text()


def require_close(left: Path, right: Path) -> None:
    """Equal to 1e-10 in float64, at every step."""
    comparison = compare(left, right)
    assert comparison.within_tolerance, comparison.text()
    assert comparison.max_diff < 1e-10
