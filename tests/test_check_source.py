"""Mistakes that the source shows: those of the corpus are found, and none in their twins and in code that is right."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from lockstep.check.source import look
from tests.silent_bugs import loops
from tests.silent_bugs.cases import CASES, Case, locate
from tests.test_layers import FILES, SRC

CAUSES = {
    "forgotten_set_epoch": "set_epoch is not called, so each epoch has the same order",
    "past_ddp": "DDP.forward is not called, so gradients stay on their ranks",
    "reduced_by_rank_0": "rank 0 alone calls distributed.all_reduce, and waits for the other ranks",
    "train_forgotten": "train is not called after eval, so training goes on in eval mode",
    "eval_forgotten": "eval is not called, so the validation is in training mode",
    "SyncedByRankZero": "rank 0 alone logs with sync_dist, and waits for the other ranks",
}


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
    module = ModuleType("script")
    module.__file__ = str(tmp_path / "script.py")
    assert look(module) == []


def test_code_that_is_right_has_no_finding() -> None:
    """Lockstep's own: its models, data, engines and collectives. Lightning's examples were looked at by hand."""
    names = [
        ".".join(path.relative_to(SRC.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in FILES
        if path.name not in ("__main__.py", "forkserver_preload.py")
    ]
    demos = ["boring_classes", "mnist_datamodule", "transformer"]
    modules = [import_module(f"lightning.pytorch.demos.{name}") for name in demos]
    assert look(*modules, *(import_module(name) for name in names if "collectives" not in name)) == []


def test_objects_without_source_are_passed_over() -> None:
    namespace: dict[str, object] = {}
    exec("class Typed:\n    pass", namespace)
    assert look(len, 3, namespace["Typed"], import_module("math"), lambda: None, None) == []
