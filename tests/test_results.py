"""No number changes: short runs have the results that 9b27836b had, to 1e-12 in float64.

The table was computed with AVX2; without vector instructions torch draws other initial weights (1e-9).

`python tests/side_by_side.py --write tests/results.json` writes the table, and compares all bits on one machine.
"""

import json
from pathlib import Path

import pytest
import torch

from lockstep import run
from tests.cases import CASES, commands
from tests.conftest import ROOT
from tests.side_by_side import table_of

TABLE: dict[str, dict[str, float]] = json.loads((ROOT / "tests" / "results.json").read_text())
TOLERANCE = 1e-12
pytestmark = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="without vector instructions initial weights differ"
)
QUICK = (
    *("mlp", "mlp raw", "mlp accumulate clip-value", "line", "rows", "softmax regression"),
    *("mlp resumed", "ddp mlp accumulate cycle clip", "ddp autoencoder"),
)


def results(name: str, folder: Path, *more: str) -> dict[str, float]:
    for command in commands(name, ROOT, folder):
        run([*command, *more])
    return table_of(folder)


def apart(actual: dict[str, float], expected: dict[str, float]) -> dict[str, tuple[float | None, float]]:
    """Return the values that are missing or differ by more than the tolerance, relative to values above 1."""
    return {
        name: (actual.get(name), value)
        for name, value in expected.items()
        if name not in actual or not abs(actual[name] - value) <= TOLERANCE * max(1.0, abs(value))
    }


def test_the_table_has_all_cases() -> None:
    assert TABLE.keys() == CASES.keys()


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in CASES])
def test_results_are_those_of_before(name: str, tmp_path: Path) -> None:
    assert apart(results(name, tmp_path), TABLE[name]) == {}


def test_a_changed_rate_is_seen(tmp_path: Path) -> None:
    """A rate that differs by 1e-9, relatively, changes weights, losses and norms."""
    seen = apart(results("mlp raw", tmp_path, "optimizer.lr=0.05000000005"), TABLE["mlp raw"])
    assert {"lr of step 0", "loss of step 1", "grad_norm of step 1", "metrics val/loss"} <= seen.keys()
    assert any(name.startswith("norm of net.") for name in seen)
