"""The comparison rules know everything that a run leaves, and each change of it is found."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import lockstep
from lockstep.plan.schemas.groups import leaves
from lockstep.runs.checkpoint.files import LAST
from lockstep.runs.compare import compare
from lockstep.runs.compare.comparison import Comparison, Values, furthest
from lockstep.runs.compare.comparison_rules import UNKNOWN, rule_of
from lockstep.runs.compare.tolerance import IDENTICAL
from tests.comparing import metrics_in

JOB = (
    *("strategy=ddp", "devices=2", "accelerator=cpu", "threads=1", "model.net.hidden=[4]", "logger=csv"),
    *("data.test_size=1755", "data.val_size=6", "batch_size=12", "max_epochs=2", "scheduler=onecycle"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One real run by both engines: 36 digits in 3 batches."""
    folder = tmp_path_factory.mktemp("run")
    lockstep.run(["engine=both", *JOB, f"hydra.run.dir={folder}"])
    return folder


@pytest.fixture(scope="module")
def compared(run: Path) -> dict[str, Any]:
    """Return the values that `compare` takes from Lightning's run, by key."""
    values: dict[str, Any] = {}

    def note(_: Comparison, left: Values, _right: Values) -> None:
        values.update({key: value for (key, _place), (value, _when) in left.items()})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Comparison, "add_all", note)
        compare(run / "lightning", run / "lightning")
    return values


def keys_of(folder: Path) -> Iterator[str]:
    """Yield every file, JSON key, field of a record's line and checkpoint key; not what says which line it is."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        yield f"{str(path.relative_to(folder)).removeprefix('checkpoints/')}:"
    config = yaml.safe_load((folder / "config.yaml").read_text())
    del config["defaults"]  # as it was composed, and not what was asked for
    yield from (f"config.yaml:{key}" for key, _ in leaves(config))
    yield from (f"metrics.json:{key}" for key in metrics_in(folder))
    for line in map(json.loads, (folder / "record.jsonl").read_text().splitlines()):
        [(kind, fields)] = line.items()
        names = [fields["name"]] if kind == "tensor" else fields.keys() - {"epoch", "grad_norm_spread"}
        yield from (f"record.jsonl:{kind}.{name}" for name in names if (kind, name) != ("fingerprint", "step"))
    checkpoint = torch.load(folder / "checkpoints" / LAST, weights_only=True)
    yield from (f"{LAST}:{key}" for key, _ in leaves(checkpoint))


def test_all_that_a_run_leaves_is_compared(run: Path, compared: dict[str, Any]) -> None:
    assert {*keys_of(run / "lightning")} <= compared.keys()
    unknown = {key for key in (*keys_of(run / "raw"), *compared) if rule_of(key).quantity == UNKNOWN}
    assert not unknown


def test_engines_leave_the_same(run: Path) -> None:
    (run / "raw" / "notes.txt").write_text("mine")
    comparison = compare(run / "lightning", run / "raw")
    assert comparison.verdict == "identical", comparison.text()
    quantities = {"optimizer state", "schedule", "best epoch", "digest", "weights saved", "parameters and buffers"}
    assert quantities <= comparison.quantities.keys()
    assert comparison.left_out[UNKNOWN] == {"notes.txt:"}


def test_each_change_is_detected(compared: dict[str, Any]) -> None:
    for key, value in compared.items():
        rule, comparison = rule_of(key), Comparison("a", "b", IDENTICAL)
        comparison.add(key, value, "changed", key, 1)
        if rule.how == "not":
            assert comparison.left_out == {rule.quantity: {rule.pattern}}
        else:
            assert comparison.verdict == "different"
            assert comparison.quantities.keys() == {rule.quantity}
    quantities = "train,test,steps,digest,parameters and buffers,optimizer state,schedule,position,weights saved"
    exact = {rule_of(key).quantity for key in compared if rule_of(key).how != "not"}
    assert {*quantities.split(","), "metrics.json", "configuration"} <= exact


def test_integers_are_compared_exactly() -> None:
    a, b = torch.tensor([2**62 + 1, 3]), torch.tensor([2**62, 3])
    assert furthest(a, b) == (2**62 + 1, 2**62)
    assert furthest(a, a) == (0, 0)
    assert furthest(torch.tensor([True, False]), torch.tensor([True, True])) == (False, True)
