"""The corpus of silent bugs: each mistake parts two layouts, as plain numbers say without a detector.

Twins of scripts part none; tests/test_check.py has those of modules.
"""

import inspect
from pathlib import Path

import pytest
import torch

from tests.conftest import IN_PROCESS
from tests.silent_bugs.cases import CASES, LAYOUTS, Case, load, locate
from tests.silent_bugs.stock import (
    Parted,
    Trace,
    apart,
    earliest,
    fit,
    generators_alike,
    in_one_process,
    ranks_apart,
    resumed,
    traced,
)
from tests.silent_bugs.two_ranks import two_ranks

pytestmark = IN_PROCESS
ON_RANKS = [case for case in CASES if case.layout in ("ddp", "noise", "resume ddp")]
PARTING = [case for case in CASES if case.layout != "source"]
Measured = dict[tuple[str, bool], list[Trace]]


def variants(case: Case) -> tuple[bool, ...]:
    return (False, True) if case.kind == "script" else (False,)


def measure(folder: Path) -> Measured:
    """Run every case that needs two ranks on this one of two."""
    measured: Measured = {}
    for case, correct in [(each, correct) for each in ON_RANKS for correct in variants(each)]:
        runs = resumed(case, correct, folder) if case.layout == "resume ddp" else (traced(case, correct),)
        measured[case.name, correct] = [*runs]
    return measured


@pytest.fixture(scope="module")
def by_rank(tmp_path_factory: pytest.TempPathFactory) -> list[Measured]:
    """All cases on two ranks: what each rank has measured."""
    folder = tmp_path_factory.mktemp("ranks")
    with two_ranks(measure, folder) as results:
        return results()


def on_ranks(case: Case, correct: bool, by_rank: list[Measured]) -> Parted:
    runs = [measured[case.name, correct] for measured in by_rank]
    if case.layout == "resume ddp":
        return earliest(*(apart(*pair) for pair in runs))
    ranks = [traces[0] for traces in runs]
    return generators_alike(ranks) if case.layout == "noise" else ranks_apart(traced(case, correct), ranks)


def first(parted: Parted) -> str:
    """Return the quantity that parts at the first step; "validation" if no other does."""
    order = ("parameters", "samples", "loss", "gradient", "buffers", "rate", "random", "validation")
    return min(parted, key=lambda name: (name == "validation", parted[name], order.index(name)), default="")


@pytest.mark.slow
@pytest.mark.parametrize("case", PARTING, ids=lambda case: case.name)
def test_the_mistake_parts(case: Case, by_rank: list[Measured], tmp_path: Path) -> None:
    parted, *of_twin = (
        on_ranks(case, correct, by_rank) if case in ON_RANKS else in_one_process(case, correct, tmp_path)
        for correct in variants(case)
    )
    assert first(parted) == case.signal, parted
    assert not any(of_twin)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_module_trains_and_differs_from_its_twin(case: Case) -> None:
    sources = [
        inspect.getsource(locate(path)).replace(path.rpartition(".")[2], "") for path in (case.module, case.twin)
    ]
    assert sources[0] != sources[1]
    assert case.layout in LAYOUTS
    for correct in (False, True):
        if case.kind == "script":
            assert next(load(case, correct)).loss.isfinite()
        else:
            trace, _trainer = fit(case, correct, max_steps=1, limit_val_batches=1)
            assert len(trace.loss) == 1
            assert torch.isfinite(trace.parameters[-1]).all()
