"""Mistakes that the source shows: those of the corpus are found, and none in their twins and in code that is right."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

import lightning
import pytest

from lockstep.check.source import look
from tests.silent_bugs import loops
from tests.silent_bugs.cases import CASES, Case, locate
from tests.test_layers import FILES

CAUSES = {
    "forgotten_set_epoch": "set_epoch is not called, so each epoch has the same order",
    "past_ddp": "DDP.forward is not called, so gradients stay on their ranks",
    "reduced_by_rank_0": "rank 0 alone calls distributed.all_reduce, and waits for the other ranks",
    "train_forgotten": "train is not called after eval, so training goes on in eval mode",
    "eval_forgotten": "eval is not called, so the validation is in training mode",
    "SyncedByRankZero": "rank 0 alone logs with sync_dist, and waits for the other ranks",
}


def module_of(path: Path) -> ModuleType:
    """Return a Python module as if imported from a file, which is not run."""
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    return module


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_mistake_is_found_and_its_twin_is_right(case: Case) -> None:
    assert (case.layout != "source") or case.name in CAUSES
    assert [each.cause for each in look(locate(case.module))] == [*filter(None, [CAUSES.get(case.name)])]
    assert look(locate(case.twin)) == []


def test_a_finding_names_the_line() -> None:
    [finding] = look(loops.reduced_by_rank_0)
    path, _, line = finding.where.rpartition(":")
    assert "distributed.all_reduce(loss.detach())" in Path(path).read_text().splitlines()[int(line) - 1]


@pytest.mark.parametrize("condition", ["not is_global_zero", "rank != 0", "local_rank not in [-1, 0]"])
def test_a_collective_of_all_ranks_in_two_branches_is_right(condition: str, tmp_path: Path) -> None:
    """As of scripts in which rank 0 downloads first, and of those that receive what rank 0 sends."""
    (tmp_path / "script.py").write_text(
        f"if {condition}:\n    dist.barrier()\nelse:\n    download()\n    dist.barrier()\nif rank == 0:\n    print()\n"
    )
    assert look(module_of(tmp_path / "script.py")) == []


def test_code_that_is_right_has_no_finding() -> None:
    """Lockstep's own: its models, data, engines and collectives. Lightning's examples were looked at by hand."""
    demos = (Path(str(lightning.__file__)).parent / "pytorch" / "demos").glob("*.py")
    assert look(*map(module_of, [*FILES, *demos])) == []


def test_objects_without_source_are_passed_over() -> None:
    namespace: dict[str, object] = {}
    exec("class Typed:\n    pass", namespace)
    assert look(len, 3, namespace["Typed"], import_module("math"), lambda: None, None) == []


@pytest.mark.parametrize(
    ("call", "count"), [("self.f1.compute()", 1), ("self.f1.compute(x)", 0), ("plan.compute()", 0)]
)
def test_a_metric_that_rank_0_computes_alone_hangs(call: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        f"class Net:\n    def end(self):\n        if is_global_zero:\n            {call}\n"
    )
    assert len(look(module_of(tmp_path / "script.py"))) == count
