"""Theory against numpy on random numbers, the judgement of what it says, and the words and the cost of each entry."""

from dataclasses import replace

import numpy as np
import pytest

from lockstep.collectives import theory
from lockstep.collectives.entry import ALL_BUT_OWN, Cost
from lockstep.collectives.judge import judged, rows, verdict
from lockstep.collectives.primitives import PRIMITIVES
from lockstep.collectives.ranks import Seen

BY_NAME = {primitive.name: primitive for primitive in PRIMITIVES}


@pytest.mark.parametrize("world", [2, 3, 4])
def test_theory_against_numpy(world: int) -> None:
    held = np.random.default_rng(world).normal(size=(world, 2 * world))
    root, ours = world - 1, held.tolist()
    total = held.sum(axis=0)
    expected = {
        theory.of_the_root: np.tile(held[root], (world, 1)),
        theory.sum_everywhere: np.tile(total, (world, 1)),
        theory.largest_everywhere: np.tile(held.max(axis=0), (world, 1)),
        theory.mean_everywhere: np.tile(held.mean(axis=0), (world, 1)),
        theory.row_everywhere: np.tile(held.reshape(-1), (world, 1)),
        theory.parts_of_the_root: held[root].reshape(world, 2),
        theory.parts_of_the_sum: total.reshape(world, 2),
        theory.transposed: held.reshape(world, world, 2).transpose(1, 0, 2).reshape(world, -1),
        theory.from_the_left: np.roll(held, 1, axis=0),
    }
    for function, numbers in expected.items():
        np.testing.assert_allclose(np.array(function(ours, root)), numbers, rtol=1e-12)
    at_the_root = theory.sum_at_the_root(ours, root)
    assert at_the_root[:root] == [None] * root
    np.testing.assert_allclose(np.array(at_the_root[root]), total)
    gathered = theory.row_at_the_root(ours, root)
    assert gathered[root] == held.reshape(-1).tolist()
    assert gathered[0] == ours[0]
    swapped = theory.first_two_swapped(ours, root)
    assert [*swapped[:2], *swapped[2:]] == [ours[1], ours[0], *ours[2:]]
    assert theory.one_more_from_the_first([[0.0]] * world, 0) == [[1.0], [1.0], *[[0.0]] * (world - 2)]
    assert theory.all_have_come(ours, root) == [[world]] * world


def test_the_verdict_is_not_lenient() -> None:
    assert verdict([1.0, 2.0], [1.0, 2.0]) == "holds"
    assert verdict([1.0, 2.0 + 1e-7], [1.0, 2.0]) == "holds"
    assert verdict([1.0, 2.0001], [1.0, 2.0]) == "fails"
    assert verdict([1.0], [1.0, 2.0]) == "fails"
    assert verdict([], [1.0]) == "fails"
    assert verdict([2.0, 1.0], [1.0, 2.0]) == "fails"
    assert verdict([7.0], None) == "–"


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=lambda primitive: primitive.name)
@pytest.mark.parametrize("world", [2, 3, 4])
def test_a_rank_that_still_holds_its_own_is_found(primitive: object, world: int) -> None:
    """If a call does nothing, theory fails on some rank: the numbers differ enough from rank to rank."""
    entry = BY_NAME[primitive.name]  # type: ignore[attr-defined]
    numbers = entry.numbers(world)
    seen = []
    for rank in range(world):
        gives, takes = entry.sizes(numbers, rank, world, 1)
        before = [entry.first(rank, index) for index in range(gives)]
        seen.append(Seen(before, before if takes is None else [0.0] * takes))
    assert "fails" in {row.theory for row in judged(entry, seen, 1, "gloo")}


def test_a_cost_is_what_its_formula_says() -> None:
    costs: set[Cost] = {primitive.cost for primitive in PRIMITIVES}
    for cost in costs:
        for world in (2, 3, 8):
            formula = cost.formula.replace("2(", "2*(").replace("·", "*")
            assert cost.bytes_moved(960, world) == pytest.approx(eval(formula, {"n": 960, "W": world}))
        assert cost.bytes_moved(960, 1) == 0
    explained = BY_NAME["all-reduce (sum)"].explain(16, 4)
    assert "2(W-1)/W·n bytes, here 24 (n = 16, W = 4)" in explained


def test_shares_are_whole_numbers() -> None:
    for primitive in PRIMITIVES:
        for world in (1, 2, 3, 4):
            whole = primitive.whole(1, world)
            assert whole == (world if primitive.cost is ALL_BUT_OWN else 1)
            assert primitive.numbers(world) == primitive.whole(primitive.numbers(world), world)


def test_what_all_ranks_are_refused_the_backend_cannot_do() -> None:
    [avg] = [BY_NAME["all-reduce (avg)"]]
    refused = Seen([1.0], [], "Cannot use ReduceOp.AVG\nwith it")
    own = judged(avg, [refused, refused], 0, "mpi")
    assert {(row.theory, row.explain) for row in own} == {("–", "mpi: Cannot use ReduceOp.AVG with it")}
    some = judged(avg, [Seen([1.0], [1.0]), refused], 0, "mpi")
    assert {row.theory for row in some} == {"fails"}
    assert "rank 1: Cannot use" in some[0].explain
    late = replace(refused, error="Timed out waiting 3000ms for recv operation to complete")
    assert {row.theory for row in judged(avg, [late, late], 0, "gloo")} == {"fails"}
    table = rows([avg, BY_NAME["gather"]], {avg.name: [late, late]}, 2, 0, "gloo")
    assert [row.theory for row in table] == ["fails", "fails", "–", "–"]
    assert table[-1].explain == "not tried: all-reduce (avg) had broken the group"
