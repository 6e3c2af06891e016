"""How closely two runs are expected to agree, by their metadata, and why they may not."""

import math

import pytest

from lockstep.runs.compare.tolerance import (
    FLOAT32,
    FLOAT64,
    HINT,
    IDENTICAL,
    LIKELY,
    MASKS,
    MIXED,
    STATISTICS,
    TF32,
    Tolerance,
    likely_reason,
    tolerance_between,
)


def run_metadata(**changes: object) -> dict[str, object]:
    usual = {"strategy": "ddp", "world_size": 2, "devices": 2, "precision": "32-true", "gradient_sync": "ddp"}
    rest = {"micro_batches": 1, "accelerator": "cpu", "threads": 1, "sync_batchnorm": False, "dropout_rng": "none"}
    return {**usual, **rest, **changes}


ALONE = {"strategy": "single", "world_size": 1, "devices": 1, "gradient_sync": "none"}
PIPELINE = {**ALONE, "strategy": "model_parallel", "devices": 2}
DROPOUT = {"dropout_rng": "per_rank"}
FOUR_RANKS = {"world_size": 4}
GPU = {"accelerator": "gpu"}


DP = {**ALONE, "strategy": "dp", "devices": 2}
VIRTUAL = {**ALONE, "strategy": "virtual", "devices": 2}
OWN_STATISTICS = {"per_rank_buffers": True}  # BatchNorm of each part of a batch


@pytest.mark.parametrize(
    ("a", "b", "tolerance"),
    [
        (FOUR_RANKS, {**FOUR_RANKS, "gradient_sync": "ring"}, FLOAT32),
        ({}, {"threads": 2}, FLOAT32),
        (DROPOUT, {**DROPOUT, "strategy": "ddp_spawn"}, IDENTICAL),
        (DROPOUT, {**DROPOUT, "threads": 2}, FLOAT32),
        (GPU, GPU, TF32),  # its kernels add in any order
        ({**GPU, "precision": "64-true"}, {**GPU, "precision": "64-true"}, FLOAT64),
        ({**GPU, "deterministic": True}, {**GPU, "deterministic": True}, IDENTICAL),
        ({**GPU, "deterministic": True}, {}, TF32),
        ({**PIPELINE, "micro_batches": 4}, ALONE, FLOAT32),
        ({**PIPELINE, **DROPOUT, "micro_batches": 4}, {**ALONE, **DROPOUT}, MASKS),
        ({**PIPELINE, **OWN_STATISTICS, "micro_batches": 4}, ALONE, STATISTICS),
        ({**DP, **DROPOUT}, {**ALONE, **DROPOUT}, MASKS),
        ({**DP, **OWN_STATISTICS}, ALONE, STATISTICS),
        ({**VIRTUAL, **DROPOUT}, DROPOUT, FLOAT32),
        (VIRTUAL, OWN_STATISTICS, FLOAT32),
    ],
)
def test_tolerance_between_two_runs(a: dict[str, object], b: dict[str, object], tolerance: Tolerance) -> None:
    """Of pairs that docs/agreement.md, whose rows tests/test_docs.py reads, does not have."""
    assert tolerance_between(run_metadata(**a), run_metadata(**b)) == tolerance


def test_ranks_with_their_own_statistics_have_a_bound() -> None:
    """Under dp they are of contiguous parts, which no rank of ddp has."""
    ranks, dp = run_metadata(**OWN_STATISTICS), run_metadata(**DP, **OWN_STATISTICS)
    assert tolerance_between(run_metadata(**ALONE), ranks) == FLOAT32
    assert tolerance_between(dp, ranks) == STATISTICS
    assert tolerance_between(dp, dp) == IDENTICAL
    assert str(STATISTICS) == "the same samples alone"


def test_bounds_are_those_of_the_docs() -> None:
    assert (IDENTICAL.within, FLOAT64.within, FLOAT32.within, MIXED.within) == (0.0, 1e-10, 1e-4, 0.1)
    assert (IDENTICAL.steps, FLOAT64.steps, FLOAT32.steps, MIXED.steps) == (math.inf, math.inf, 3, 3)


def test_likely_reason_needs_other_worlds() -> None:
    single, ranks = run_metadata(**ALONE), run_metadata()
    assert likely_reason(single, ranks, "loss") == LIKELY.format(HINT)
    assert likely_reason(single, ranks, "learning rate") is None
    assert likely_reason(single, single, "loss") is None
