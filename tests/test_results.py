"""No number changes: runs of the nets, data, optimizers and schedules give the results of version 9b27836b.

`python -m tests.test_results` writes those of this tree.
"""

import json
import tempfile
from pathlib import Path

import pytest
import torch

from lockstep import run
from tests.conftest import ROOT

FILE = ROOT / "tests" / "results.json"
COMMON = "precision=64-true accelerator=cpu threads=1 logger=none seed=3 max_epochs=2"
DIGITS = "data=digits data.test_size=1700 data.val_size=36 trainer.limit_test_batches=2 batch_size=12"
"""61 digits: six batches an epoch, the last of one sample, which only one rank of several has."""
MLP = f"model=mlp model.net.hidden=[30,20] {DIGITS}"
ROWS = "model=mlp model._target_=lockstep.models.Regressor model.net.hidden=[16] data=random_regression"
FEW = "trainer.limit_train_batches=4 trainer.limit_val_batches=2 trainer.limit_test_batches=2"
SGD = "optimizer=sgd optimizer.momentum=0.9 optimizer.lr"
WARMUP = "scheduler=warmup_linear scheduler.warmup_steps=3"
CYCLE = "scheduler=onecycle scheduler.warmup_fraction=0.4"
DDP = "strategy=ddp devices=2"
CASES = {
    "mlp raw": f"{MLP} {SGD}=0.05 engine=raw",
    "line": f"model=regression data=line data.samples=61 data.val_size=5 batch_size=12 {SGD}=0.01 {WARMUP}",
    "text": f"model=char_rnn model.net.width=16 data=text data.length=16 batch_size=12 {FEW}",
    "plain cnn": f"model=cnn model.net.norm=none {DIGITS} trainer.limit_train_batches=3 {SGD}=0.05 {WARMUP}"
    " accumulate_grad_batches=2 engine=raw",
    "ddp mlp accumulate cycle clip": f"{MLP} {SGD}=0.05 {CYCLE} {DDP} gradient_clip_val=0.5 accumulate_grad_batches=4",
    "ddp rows": f"{ROWS} {SGD}=0.01 batch_size=12 {DDP}",
    "ddp 3 points": f"model=mlp model.net.hidden=[16] data=points data.samples=101 batch_size=9 {WARMUP}"
    " strategy=ddp devices=3",
    "fsdp lenet groups": f"model=lenet model.net.dropout=0 {DIGITS} optimizer=adamw_groups optimizer.weight_decay=0.1"
    " strategy=fsdp devices=2",
}
TABLE: dict[str, dict[str, float]] = json.loads(FILE.read_text())
TOLERANCE = 1e-12
SHOWN = (0, 1, 2, 4, 8)
"""Steps in the table, beside the last."""
pytestmark = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="without vector instructions initial weights differ"
)


def results(name: str, folder: Path, *more: str) -> dict[str, float]:
    """Return what the table has of a case: some steps, all metrics, and the norm of each weight."""
    run([*f"{COMMON} {CASES[name]}".split(), f"hydra.run.dir={folder}", *more])
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


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "mlp raw")) for name in CASES])
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
