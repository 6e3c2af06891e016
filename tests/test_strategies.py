"""A strategy is one file and one YAML: nobody else asks for its name."""

import ast

import pytest

from lockstep.strategies import STRATEGIES
from tests.conftest import ROOT

SRC = ROOT / "src" / "lockstep"
BESIDE = ("strategies", "collectives", "bench")
GRADIENT_SYNC = {"schemas/engine.py": {"ddp"}}
"""Also the name of a way to sum gradients."""


def asked(source: str) -> set[str]:
    """The names of strategies that a file has as strings, and their classes."""
    nodes = [*ast.walk(ast.parse(source))]
    names = {str(node.value) for node in nodes if isinstance(node, ast.Constant) and node.value in STRATEGIES}
    modules = {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    files = {f"lockstep.strategies.{path.stem}" for path in (SRC / "strategies").glob("*.py")}
    return names | (modules & (files - {"lockstep.strategies.strategy"}))


def test_no_other_module_asks_for_a_strategys_name() -> None:
    files = (path for path in SRC.rglob("*.py") if path.relative_to(SRC).parts[0] not in BESIDE)
    found = {str(path.relative_to(SRC)): asked(path.read_text()) for path in files}
    assert {path: names for path, names in found.items() if names} == GRADIENT_SYNC


@pytest.mark.parametrize(
    "source",
    [
        'if plan.strategy.name == "ddp": pass',
        'one = name.startswith("ddp")',
        'kinds = {"model_parallel": 1}',
        'match plan.strategy.name:\n    case "dp":\n        pass',
        "from lockstep.strategies.single import Single",
    ],
)
def test_the_rule_catches_who_asks(source: str) -> None:
    assert asked(source)
