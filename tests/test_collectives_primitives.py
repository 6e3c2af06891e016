"""What is expected of each primitive against values by hand, how strict the check is, and what each entry says."""

import inspect
from collections.abc import Callable

import numpy as np
import pytest

from lockstep.collectives.primitives import ALL_BUT_OWN, PRIMITIVES, Primitive
from lockstep.collectives.ranks import Observation
from lockstep.collectives.verify import check_all, compare

BY_NAME = {primitive.name: primitive for primitive in PRIMITIVES}
A, B, C = [1.0, 2.0, 3.0], [10.0, 20.0, 40.0], [100.0, -300.0, 200.0]
SUM = [111.0, -278.0, 243.0]
BY_HAND: dict[str, list[list[float] | None]] = {
    "isend/irecv": [B, A, C],
    "batched isend/irecv": [C, A, B],
    "broadcast": [B, B, B],
    "reduce": [None, SUM, None],
    "all-reduce (sum)": [SUM, SUM, SUM],
    "all-reduce (max)": [[100, 20, 200]] * 3,
    "all-reduce (avg)": [[37, -92.66666666666667, 81]] * 3,
    "ring all-reduce": [SUM, SUM, SUM],
    "gather": [A, [*A, *B, *C], C],
    "all-gather": [[*A, *B, *C]] * 3,
    "scatter": [[10], [20], [40]],
    "reduce-scatter": [[111], [-278], [243]],
    "all-to-all": [[1, 10, 100], [2, 20, -300], [3, 40, 200]],
    "barrier": [[3], [3], [3]],
}
"""Of three ranks that held A, B and C, the second the root."""


def test_what_is_expected_by_hand() -> None:
    assert {*BY_HAND, "send/recv"} == {*BY_NAME}
    for name, numbers in BY_HAND.items():
        for expected, by_hand in zip(BY_NAME[name].expected([A, B, C], 1), numbers, strict=True):
            assert (expected is None) == (by_hand is None), name
            if expected is not None and by_hand is not None:
                np.testing.assert_allclose(expected, by_hand, rtol=1e-12, err_msg=name)
    assert BY_NAME["send/recv"].expected([[4.0], [0.0], [9.0]], 0) == [[5.0], [5.0], [9.0]]
    pairs = [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]
    np.testing.assert_array_equal(BY_NAME["all-to-all"].expected(pairs, 0), [[1, 2, 5, 6], [3, 4, 7, 8]])


def test_the_check_is_strict() -> None:
    assert compare([1.0, 2.0], [1.0, 2.0]) == "pass"
    assert compare([1.0, 2.0 + 1e-7], [1.0, 2.0]) == "pass"
    assert compare([1.0, 2.0001], [1.0, 2.0]) == "fail"
    assert compare([1.0], [1.0, 2.0]) == "fail"
    assert compare([], [1.0]) == "fail"
    assert compare([2.0, 1.0], [1.0, 2.0]) == "fail"
    assert compare([float("nan")], [1.0]) == "fail"
    assert compare([7.0], None) == "–"


@pytest.mark.parametrize("world", [2, 3, 4])
def test_a_call_that_does_nothing_is_found(world: int) -> None:
    """The numbers differ enough from rank to rank that a check fails on some rank."""
    for primitive in PRIMITIVES:
        seen = []
        for rank in range(world):
            inputs, outputs = primitive.sizes(primitive.count(world), rank, world, 1)
            before = [primitive.initial(rank, index) for index in range(inputs)]
            seen.append(Observation(before, before if outputs is None else [0.0] * outputs))
        assert "fail" in {row.result for row in check_all([primitive], {primitive.name: seen}, world, 1)}, (
            primitive.name
        )


def test_a_cost_is_what_its_formula_says() -> None:
    for cost in {primitive.cost for primitive in PRIMITIVES}:
        for world in (2, 3, 8):
            formula = cost.formula.replace("2(", "2*(").replace("·", "*")
            assert 960 * cost.factor(world) == pytest.approx(eval(formula, {"n": 960, "W": world}))
        assert cost.factor(1) == 0
    explained = BY_NAME["all-reduce (sum)"].explain(16, 4)
    assert "moves 2(W-1)/W·n bytes, here 24 (n = 16, W = 4)" in explained


def test_shares_are_whole_numbers() -> None:
    for primitive in PRIMITIVES:
        for world in (1, 2, 3, 4):
            assert primitive.divisible(1, world) == (world if primitive.cost is ALL_BUT_OWN else 1)
            assert primitive.count(world) == primitive.divisible(primitive.count(world), world)


def test_every_call_has_the_parameters_of_the_others() -> None:
    calls: list[Callable[..., object]] = [primitive.call for primitive in PRIMITIVES]
    calls += [primitive.timed for primitive in PRIMITIVES if primitive.timed]
    names = {tuple(name.lstrip("_") for name in inspect.signature(call).parameters) for call in calls}
    assert names == {("input", "output", "root")}
    assert isinstance(PRIMITIVES[0], Primitive)
