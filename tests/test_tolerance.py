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


@pytest.mark.parametrize(
    ("a", "b", "tolerance"),
    [
        ({}, {"strategy": "ddp_spawn", "gradient_sync": "ring"}, IDENTICAL),
        (FOUR_RANKS, {**FOUR_RANKS, "gradient_sync": "ring"}, FLOAT32),
        ({}, {"threads": 2}, FLOAT32),
        ({}, {"compile": True}, FLOAT32),
        (ALONE, {}, FLOAT32),
        ({**ALONE, "precision": "64-true"}, {"precision": "64-true"}, FLOAT64),
        ({**ALONE, "precision": "bf16-mixed"}, {"precision": "bf16-mixed"}, MIXED),
        (DROPOUT, {**DROPOUT, "strategy": "ddp_spawn"}, IDENTICAL),
        ({**ALONE, **DROPOUT}, DROPOUT, MASKS),
        (DROPOUT, {**DROPOUT, "threads": 2}, FLOAT32),
        (GPU, GPU, TF32),  # its kernels add in any order
        ({**GPU, "precision": "64-true"}, {**GPU, "precision": "64-true"}, FLOAT64),
        ({**GPU, "deterministic": True}, {**GPU, "deterministic": True}, IDENTICAL),
        ({**GPU, "deterministic": True}, {}, TF32),
    ],
)
def test_tolerance_between_two_runs(a: dict[str, object], b: dict[str, object], tolerance: Tolerance) -> None:
    assert tolerance_between(run_metadata(**a), run_metadata(**b)) == tolerance


DP = {**ALONE, "strategy": "dp", "devices": 2}
VIRTUAL = {**ALONE, "strategy": "virtual", "devices": 2}
FSDP = {"strategy": "fsdp", "gradient_sync": "fsdp"}
OWN_STATISTICS = {"per_rank_buffers": True}  # BatchNorm of each part of a batch


@pytest.mark.parametrize(
    ("lightning", "raw", "tolerance"),
    [
        ({}, {"gradient_sync": "ring"}, IDENTICAL),
        ({"strategy": "zero1"}, {}, IDENTICAL),
        (PIPELINE, ALONE, IDENTICAL),
        ({**PIPELINE, "micro_batches": 4}, ALONE, FLOAT32),
        ({**PIPELINE, **DROPOUT, "micro_batches": 4}, {**ALONE, **DROPOUT}, MASKS),
        ({**PIPELINE, **OWN_STATISTICS, "micro_batches": 4}, ALONE, STATISTICS),
        (DP, ALONE, FLOAT32),
        ({**DP, **DROPOUT}, {**ALONE, **DROPOUT}, MASKS),
        ({**DP, **OWN_STATISTICS}, ALONE, STATISTICS),
        ({**FSDP, **OWN_STATISTICS}, OWN_STATISTICS, FLOAT32),
        ({**FSDP, **DROPOUT}, DROPOUT, FLOAT32),
        (VIRTUAL, OWN_STATISTICS, FLOAT32),
        ({**VIRTUAL, **DROPOUT}, DROPOUT, FLOAT32),
    ],
)
def test_tolerance_between_two_engines(
    lightning: dict[str, object], raw: dict[str, object], tolerance: Tolerance
) -> None:
    """`engine=both` runs dp and model_parallel beside a raw single, zero1, fsdp and virtual beside a raw ddp."""
    left, right = run_metadata(engine="lightning", **lightning), run_metadata(engine="raw", **raw)
    expected = tolerance_between(left, right)
    assert (expected, expected.reason) == (tolerance, tolerance.reason)
    in_float64 = [{**run, "precision": "64-true"} for run in (left, right)]
    if tolerance == FLOAT32:
        assert tolerance_between(in_float64[0], in_float64[1]) == FLOAT64


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
