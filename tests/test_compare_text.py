"""What `compare` prints: the options that differ, then the numbers, in 80 columns, and why it expects the verdict."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.runs.compare import Comparison, differing_options
from lockstep.runs.compare.comparison import MISSING, difference
from lockstep.runs.compare.tolerance import FLOAT64, IDENTICAL

DIGESTS = "f" * 64, "0" * 64


def two_rates(options: dict[str, tuple[str, str]]) -> Comparison:
    """Return the comparison of two runs that have other learning rates."""
    comparison = Comparison("a", "b", IDENTICAL, options)
    comparison.add("config.yaml:", "there", "there", "config.yaml", 9)
    comparison.add("config.yaml:optimizer.lr", 0.001, 0.01, "config.yaml, optimizer.lr", 9)
    comparison.add("metrics.json:digest", *DIGESTS, "metrics.json, digest", 9)
    for step in (1, 2):
        place = f"epoch 1, step {step}"
        comparison.add("record.jsonl:step.loss_sum", 2.2881429195404053, 2.5 - 1 / step, f"{place}, loss_sum", step)
        comparison.add("record.jsonl:step.lr", 0.001, 0.01, f"{place}, lr", step)
        comparison.add("record.jsonl:step.ids", DIGESTS[0], DIGESTS[step - 1], f"{place}, ids", step)
        comparison.add("record.jsonl:step.samples", 64, 64, f"{place}, samples", step)
    comparison.add("record.jsonl:validation.val/acc", MISSING, 0.5, "epoch 2, val/acc", 9)
    comparison.add("config.yaml:name", "a", "b", "config.yaml, name", 9)
    return comparison


def test_the_configuration_comes_first_and_then_the_numbers_by_when_they_differ(tmp_path: Path) -> None:
    comparison = two_rates({"strategy": ("single", "ddp"), "optimizer.lr": ("0.001", "0.01")})
    assert (
        comparison.text()
        == """\
a
  against
b

  strategy: single against ddp
  optimizer.lr: 0.001 against 0.01

  learning rate           epoch 1, step 1, lr: 0.001 against 0.01 (by 9.0e-03)
  loss                    epoch 1, step 1, loss_sum: 2.2881429195404053 against
                            1.5 (by 3.4e-01)
  sample ids              epoch 1, step 2, ids: 'fffffffffffffffffff…fffffffff'
                            against '0000000000000000000…000000000'
  configuration           config.yaml, optimizer.lr: 0.001 against 0.01 (by
                            9.0e-03)
  validation              epoch 2, val/acc: 'missing' against 0.5
  digest                  metrics.json, digest: 'fffffffffffffffffff…fffffffff'
                            against '0000000000000000000…000000000'

  identical: samples
  not compared: how a run is named, watched and saved

different; expected: identical (the same arithmetic in the same order)
They differ first in configuration, config.yaml, optimizer.lr: 0.001 against
  0.01 (by 9.0e-03)."""
    )
    comparison.save(tmp_path)
    saved = json.loads((tmp_path / "comparison.json").read_text())
    assert saved["configuration"]["optimizer.lr"] == ["0.001", "0.01"]
    assert saved["first_divergence"] == "configuration, config.yaml, optimizer.lr: 0.001 against 0.01 (by 9.0e-03)"


def test_options_have_the_keys_of_the_command_line() -> None:
    """What follows from the choice of another option is left out, and how a run is watched."""
    model: dict[str, Any] = {"_target_": "mine.Module", "net": {"_target_": "mine.Net", "width": 8}}
    stopping: dict[str, Any] = {"_target_": "mine.Stopping", "patience": 3}
    a: dict[str, Any] = {"name": "a", "model": model, "callbacks": {"stopping": stopping}}
    b: dict[str, Any] = {"name": "b", "model": {**model, "net": {"_target_": "mine.Net", "width": 16}}}
    b |= {"callbacks": {"stopping": {**stopping, "patience": 5}}, "logger": {"csv": {"_target_": "mine.CSV"}}}
    a |= {"data": {"_target_": "mine.Digits", "val_size": 1}, "scheduler": None}
    b |= {"data": {"_target_": "mine.Line", "noise": 0.1}, "scheduler": {"_target_": "mine.Cycle", "fraction": 0.1}}
    assert differing_options(a, b) == {
        "model.net.width": ("8", "16"),
        "callbacks.stopping.patience": ("3", "5"),
        "data": ("mine.Digits", "mine.Line"),
        "scheduler": ("null", "mine.Cycle"),
    }
    without = {**model, "net": {"_target_": "mine.Net"}}
    assert differing_options({"model": model}, {"model": without}) == {"model.net.width": ("8", "–")}


@pytest.mark.parametrize(("tolerance", "verdict"), [(FLOAT64, "within 2.0e-11"), (IDENTICAL, "different")])
def test_two_precisions_are_compared_by_their_values(tolerance: Any, verdict: str) -> None:
    comparison, weight = Comparison("a", "b", tolerance), torch.tensor([0.5, 0.25])
    comparison.add("last.ckpt:state_dict.w", weight, weight.double() + 2e-11, "last.ckpt, state_dict.w", 1)
    assert comparison.verdict == verdict


def test_differences_are_absolute_below_1_and_relative_above() -> None:
    assert difference(0.5, 0.25) == 0.25
    assert difference(200.0, 100.0) == 0.5
    assert difference("a", "a") == difference(None, None) == 0.0
    assert math.isinf(difference("a", "b"))
    assert math.isinf(difference(math.nan, 1.0))
    assert math.isinf(difference(math.nan, math.nan))
    assert math.isinf(difference(None, 0.0))
