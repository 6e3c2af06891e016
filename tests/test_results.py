"""No number changes: short runs in float64 give the results in results.json, which version 9b27836b has written.

`python -m tests.test_results` writes those of this tree.
"""

import json
import tempfile
from pathlib import Path

import pytest
import torch

from lockstep import run
from tests.cases import CASES, QUICK, commands
from tests.conftest import ROOT

FILE = ROOT / "tests" / "results.json"
TABLE: dict[str, dict[str, float]] = json.loads(FILE.read_text())
TOLERANCE = 1e-12
SHOWN = (0, 1, 2, 4, 8)
"""Steps in the table, beside the last."""
pytestmark = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="without vector instructions initial weights differ"
)


def results(name: str, folder: Path, *more: str) -> dict[str, float]:
    """Return what the table has of a case: some steps, all metrics, and the norm of each weight."""
    for command in commands(name, folder):
        run([*command, *more])
    metrics = json.loads((folder / "metrics.json").read_text())
    lines = [json.loads(line) for line in (folder / "record.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if "step" in line]
    values = {"steps": len(steps), **{f"metrics {name}": float(metrics[name]) for name in metrics if "/" in name}}
    for number in sorted({*SHOWN, len(steps) - 1} & {*range(len(steps))}):
        values[f"loss of step {number}"] = steps[number]["loss_sum"] / steps[number]["samples"]
        values |= {f"{name} of step {number}": steps[number][name] for name in ("grad_norm", "lr")}
    state = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    weights = {name: tensor for name, tensor in state.items() if name.startswith("net.")}
    return values | {f"norm of {name}": tensor.double().norm().item() for name, tensor in weights.items()}


def apart(actual: dict[str, float], expected: dict[str, float]) -> dict[str, tuple[float | None, float]]:
    """Return the values that are missing or differ by more than the tolerance, relative to values above 1."""
    return {
        name: (actual.get(name), value)
        for name, value in expected.items()
        if name not in actual or not abs(actual[name] - value) <= TOLERANCE * max(1.0, abs(value))
    }


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in CASES])
def test_results_are_those_of_before(name: str, tmp_path: Path) -> None:
    assert apart(results(name, tmp_path), TABLE[name]) == {}


def test_a_changed_rate_is_seen(tmp_path: Path) -> None:
    """A rate that differs by 1e-9, relatively, changes weights, losses and norms."""
    seen = apart(results("mlp raw", tmp_path, "optimizer.lr=0.05000000005"), TABLE["mlp raw"])
    assert {"lr of step 0", "loss of step 1", "grad_norm of step 1", "metrics val/loss"} <= seen.keys()
    assert any(name.startswith("norm of net.") for name in seen)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        table = {name: results(name, Path(folder) / name.replace(" ", "_")) for name in CASES}
    FILE.write_text(json.dumps(table, indent=1) + "\n")
