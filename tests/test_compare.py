"""Comparing two runs: each planted bug is found at the right step, and every bound is as documented."""

import json
import math
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import Optimizer

from lockstep import optimizers
from lockstep.build import plan_from
from lockstep.command_line.compose import compose_job
from lockstep.compare import Comparison, compare
from lockstep.compare.comparison import difference
from lockstep.compare.tolerance import (
    FLOAT32,
    FLOAT64,
    IDENTICAL,
    INCOMPARABLE,
    MIXED,
    Tolerance,
    tolerance_between,
)
from lockstep.config_error import ConfigError
from lockstep.launch.topology import RankContext
from lockstep.loaders import map_loader
from lockstep.parallel import reduce
from lockstep.plan import Plan
from lockstep.raw.precision import Precision
from lockstep.record.digest import digest
from lockstep.run_files import Metrics
from lockstep.steps import task_module
from tests.conftest import Command, MakePlan
from tests.rank_helpers import ENGINES, on_ranks, with_engine

SMALL = [
    *("batch_size=12", "max_epochs=2", "seed=11", "threads=1", "accelerator=cpu", "logger=none", "precision=64-true"),
    *("data.test_size=1655", "data.val_size=12"),  # 130 digits in 11 batches
]


def lightning_then(plan: Plan, context: RankContext) -> Metrics:
    """On a rank: a correct run, by Lightning."""
    ENGINES["lightning"](with_engine(plan, "lightning", Path(plan.run_dir) / "right"), context)
    return {}


def raw_run(plan: Plan, context: RankContext, gradient_sync: str = "ddp") -> Metrics:
    return ENGINES["raw"](with_engine(plan, "raw", Path(plan.run_dir) / "wrong", gradient_sync), context)


def with_an_unreduced_gradient_at_step_7_on_rank_1(plan: Plan, context: RankContext) -> Metrics:
    calls = iter(range(1, 1000))
    right = reduce.all_reduce

    def wrong(gradients: reduce.Gradients) -> None:
        before = [gradient.clone() for gradient in gradients]
        right(gradients)
        if next(calls) == 7 and context.rank == 1:
            for gradient, local in zip(gradients, before, strict=True):
                gradient.copy_(local)

    reduce.BY_HAND["all_reduce"] = wrong
    return raw_run(plan, context, "all_reduce")


def with_two_samples_swapped(plan: Plan, context: RankContext) -> Metrics:
    """Positions 40 and 100 of the second epoch: in its batches 3 and 8, steps 11 + 4 and 11 + 9."""
    right = map_loader.epoch_order  # type: ignore[attr-defined]

    def wrong(samples: int, seed: int, epoch: int) -> torch.Tensor:
        order = right(samples, seed, epoch)
        if epoch == 1:
            order[[40, 100]] = order[[100, 40]]
        return order

    map_loader.epoch_order = wrong  # type: ignore[attr-defined]
    return raw_run(plan, context)


def with_a_rate_off_by_one_ulp(plan: Plan, context: RankContext) -> Metrics:
    """At step 5 alone, in the last bit."""
    right, steps = Precision.step, 0

    def wrong(self: Precision, optimizer: Optimizer, closure: Callable[[], Any]) -> None:
        nonlocal steps
        steps += 1
        [group] = optimizer.param_groups
        before = group["lr"]
        if steps == 5:
            group["lr"] = math.nextafter(before, 1)
        right(self, optimizer, closure)
        group["lr"] = before

    Precision.step = wrong  # type: ignore[method-assign]
    return raw_run(plan, context)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a correct run."""
    folder = tmp_path_factory.mktemp("lightning")
    on_ranks(two_ranks(folder), lightning_then)
    return folder / "right"


def two_ranks(folder: Path) -> Plan:
    return plan_from(compose_job(["strategy=ddp", "devices=2", "model.hidden=[16]", *SMALL])[0], folder)


@pytest.mark.parametrize(
    ("wrong", "first", "where"),
    [
        (with_an_unreduced_gradient_at_step_7_on_rank_1, "ranks in step", "epoch 1, step 7, grad_norm_spread"),
        (with_two_samples_swapped, "sample ids", "epoch 2, step 15, ids"),
        (with_a_rate_off_by_one_ulp, "learning rate", "epoch 1, step 5, lr"),
    ],
)
def test_bug_is_found_at_its_step(
    wrong: Callable[[Plan, RankContext], Metrics], first: str, where: str, right: Path, tmp_path: Path
) -> None:
    on_ranks(two_ranks(tmp_path), wrong)
    for tolerance in (None, 1e-10):
        comparison = compare(right, tmp_path / "wrong", tolerance)
        assert comparison.verdict == "different"
        name, position = first_of(comparison)
        assert name == first
        assert position.startswith(where)
        assert f"They differ first in {first}, {where}" in comparison.text()
    assert compare(right, right).verdict == "identical"


def with_a_larger_rate_on_rank_1(plan: Plan, context: RankContext) -> Metrics:
    """By 1 %, in both engines: the gradients are all-reduced, so every norm is equal on all ranks."""
    right = optimizers.create_optimizer

    def wrong(choice: Any, net: torch.nn.Module) -> torch.optim.Optimizer:
        optimizer = right(choice, net)
        for group in optimizer.param_groups:
            group["lr"] *= 1.01 if context.rank == 1 else 1
        return optimizer

    task_module.create_optimizer = wrong  # type: ignore[attr-defined]
    lightning_then(plan, context)
    return raw_run(plan, context)


def test_ranks_that_diverge_alike_in_both_engines(make_plan: MakePlan) -> None:
    plan = make_plan("strategy=ddp", "devices=2", "model.hidden=[16]", "record.weights=step", *SMALL)
    on_ranks(plan, with_a_larger_rate_on_rank_1)
    runs = Path(plan.run_dir) / "right", Path(plan.run_dir) / "wrong"
    comparison = compare(*runs)
    assert first_of(comparison) == ("ranks in step", f"epoch 1, step 1, weights of ranks 0 and 1 in {runs[0]}: ")
    apart = {name for name, quantity in comparison.quantities.items() if quantity.first is not None}
    assert apart == {"ranks in step"}, "all else is equal in both"


def first_of(comparison: Comparison) -> tuple[str, str]:
    """The quantity that differs first, and where."""
    first = comparison.first_divergence
    assert first is not None
    return first.name, re.sub("(: ).*", r"\1", str(first.first))


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders `single` and `ddp` of one plan in float64, by the raw engine."""
    import lockstep

    folder = tmp_path_factory.mktemp("runs")
    for strategy, devices in (("single", 1), ("ddp", 3)):
        world = (f"strategy={strategy}", f"devices={devices}", f"hydra.run.dir={folder / strategy}")
        lockstep.run(["engine=raw", "model.hidden=[16]", *SMALL, *world])
    return folder


@pytest.fixture
def copied(two_runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(two_runs, tmp_path / "copied"))


PRESENT = ("record.jsonl", "metrics.json", "config.yaml", "confusion.csv", "last.ckpt", "best.ckpt", "previous.ckpt")


def test_another_world_is_within_a_measured_bound(two_runs: Path) -> None:
    comparison = compare(two_runs / "single", two_runs / "ddp")
    assert comparison.within_tolerance
    assert comparison.tolerance == FLOAT64
    assert comparison.verdict.startswith("within ")
    assert 0 < comparison.max_diff < 1e-10
    verdicts = {name: quantity.verdict for name, quantity in comparison.quantities.items()}
    exact = ("samples", "sample ids", "learning rate", "ranks in step", "configuration", "steps", "position")
    for name in (*exact, *PRESENT):
        assert verdicts.pop(name) == "identical"
    assert set(verdicts) == {
        *("loss", "gradient norm", "validation", "train", "test", "confusion matrix"),
        *("weights saved", "optimizer state", "schedule", "results", "best epoch"),
        *("layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias"),
    }
    assert compare(two_runs / "single", two_runs / "ddp", 0.0).verdict == "different"


def change(run: Path, kind: str, index: int, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit the index-th line of one kind in a run's record."""
    path = run / "record.jsonl"
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    edit([line for line in lines if kind in line][index][kind])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def change_metadata(run: Path, **changes: str) -> None:
    change(run, "run", 0, lambda line: line.update(changes))


@pytest.mark.parametrize(
    ("kind", "index", "edit", "first", "where"),
    [
        ("step", 2, lambda line: line.pop("grad_norm"), "gradient norm", "epoch 1, step 3, grad_norm: "),
        ("step", 12, lambda line: line.update(samples=13), "samples", "epoch 2, step 13, samples: "),
        ("step", 5, lambda line: line.update(loss_sum=None), "loss", "epoch 1, step 6, loss_sum: "),
        ("step", 21, lambda line: line.update(step=40), "steps", "epoch 2, step 22: "),
        ("validation", 1, lambda line: line.update({"val/acc": 2.0}), "validation", "epoch 2, val/acc: "),
        ("tensor", 3, lambda line: line.update(name="layers.9.bias"), "layers.2.bias", "after the last epoch: "),
    ],
)
def test_changed_line_is_found(
    kind: str, index: int, edit: Callable[[dict[str, Any]], object], first: str, where: str, copied: Path
) -> None:
    changed = Path(shutil.copytree(copied / "single", copied / "changed"))
    change(changed, kind, index, edit)
    comparison = compare(copied / "single", changed)
    assert first_of(comparison) == (first, where)
    assert comparison.first_divergence is not None
    assert math.isinf(comparison.first_divergence.difference) == (first not in ("samples", "validation"))


@pytest.mark.parametrize("number", [math.nan, math.inf, 0.25])
def test_changed_weights_are_found(number: float, copied: Path) -> None:
    """Of finite ones also by how much."""
    run = copied / "ddp"
    checkpoint = run / "checkpoints" / "last.ckpt"
    state = torch.load(checkpoint, weights_only=True)
    bias = state["state_dict"]["net.layers.2.bias"]
    bias[3] += number
    torch.save(state, checkpoint)
    change(run, "tensor", 3, lambda line: line.update(digest=digest({"bias": bias})))
    comparison = compare(copied / "single", run)
    assert comparison.quantities["layers.2.bias"].verdict == "different"
    assert ("(by 2.5e-01)" in comparison.text()) == math.isfinite(number)


def test_digests_are_compared_without_a_checkpoint(copied: Path) -> None:
    (copied / "ddp" / "checkpoints" / "last.ckpt").write_bytes(b"half a file")
    comparison = compare(copied / "single", copied / "ddp")
    assert first_of(comparison)[0] == "layers.0.weight"


COMPARE = (sys.executable, "-m", "lockstep.compare")


def test_command(copied: Path, command: Command) -> None:
    ended = command(*COMPARE, str(copied / "single"), str(copied / "ddp"))
    assert (ended.status, ended.err) == (0, "")
    assert "expected: within 1e-10" in ended.out
    ended = command(*COMPARE, str(copied / "single"), str(copied / "ddp"), "--tolerance", "0")
    assert ended.status == 1
    assert ended.out.splitlines()[-1].startswith("They differ first in ")
    ended = command(*COMPARE, str(copied / "single"), str(copied))
    assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty", b""),
        ("record.jsonl", b'{"run": {}}\n{"step": {"ep'),
        ("record.jsonl", b"\xff\xfe\x00"),
        ("record.jsonl", b'{"step": {"step": 1}}'),
        ("metrics.json", b"[1, 2]"),
        ("metrics.json", b'{"strategy": "ddp", "test/acc": 0.5}'),
        ("lightning/metrics.json", b"{}"),
    ],
)
def test_folder_without_a_run_is_refused(name: str, content: bytes, copied: Path) -> None:
    path = copied / "folder" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"{copied / 'folder'}.* write ") as raised:
        compare(copied / "single", copied / "folder")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("tolerance", [math.nan, math.inf, -1.0])
def test_invalid_tolerance_is_refused(tolerance: float, copied: Path) -> None:
    with pytest.raises(ConfigError, match="write tolerance=1e-10"):
        compare(copied / "single", copied / "ddp", tolerance)


def run_metadata(**changes: object) -> dict[str, object]:
    usual = {"strategy": "ddp", "world_size": 2, "devices": 2, "precision": "32-true", "gradient_sync": "ddp"}
    rest = {"micro_batches": 1, "accelerator": "cpu", "threads": 1, "sync_batchnorm": False, "dropout_rng": "none"}
    return {**usual, **rest, **changes}


ALONE = {"strategy": "single", "world_size": 1, "devices": 1, "gradient_sync": "none"}


PIPELINE = {**ALONE, "strategy": "model_parallel", "devices": 2}
DROPOUT = {"dropout_rng": "per_rank"}
FOUR_RANKS = {"world_size": 4}


@pytest.mark.parametrize(
    ("a", "b", "tolerance"),
    [
        ({}, {"strategy": "ddp_spawn", "gradient_sync": "ring"}, IDENTICAL),
        (FOUR_RANKS, {**FOUR_RANKS, "gradient_sync": "ring"}, FLOAT32),
        ({}, {"threads": 2}, FLOAT32),
        (ALONE, {}, FLOAT32),
        (ALONE, PIPELINE, IDENTICAL),
        (ALONE, {**PIPELINE, "micro_batches": 4}, FLOAT32),
        ({**ALONE, "strategy": "dp", "devices": 2}, {**ALONE, "strategy": "dp", "devices": 3}, FLOAT32),
        ({**ALONE, "precision": "64-true"}, {"precision": "64-true"}, FLOAT64),
        ({"precision": "bf16-mixed"}, {"precision": "bf16-mixed"}, IDENTICAL),
        ({**ALONE, "precision": "bf16-mixed"}, {"precision": "bf16-mixed"}, MIXED),
        (DROPOUT, {**DROPOUT, "strategy": "ddp_spawn"}, IDENTICAL),
        ({**ALONE, **DROPOUT}, DROPOUT, INCOMPARABLE),
        (DROPOUT, {**DROPOUT, "threads": 2}, FLOAT32),
        ({**ALONE, "dropout_rng": "global"}, {"dropout_rng": "global"}, FLOAT32),
    ],
)
def test_tolerance_between_two_runs(a: dict[str, object], b: dict[str, object], tolerance: Tolerance) -> None:
    assert tolerance_between(run_metadata(**a), run_metadata(**b)) == tolerance


def test_other_dropout_masks_need_the_same_samples_alone(copied: Path) -> None:
    """Any finite loss is allowed."""
    for name in ("single", "ddp"):
        change_metadata(copied / name, dropout_rng="per_rank")
    change(copied / "ddp", "step", 2, lambda line: line.update(loss_sum=1e9))
    comparison = compare(copied / "single", copied / "ddp")
    assert comparison.within_tolerance
    assert "expected: the same samples alone" in comparison.text()
    change(copied / "ddp", "step", 4, lambda line: line.update(samples=13))
    assert first_of(compare(copied / "single", copied / "ddp"))[1] == "epoch 1, step 5, samples: "
    change(copied / "ddp", "step", 3, lambda line: line.update(loss_sum=None))
    assert first_of(compare(copied / "single", copied / "ddp"))[1] == "epoch 1, step 4, loss_sum: "


def test_float32_bound_holds_for_the_first_steps(copied: Path) -> None:
    """A difference of 0.1 counts at step 3; at step 4 it is rounding that grew, but a missing key still counts."""
    for name in ("single", "ddp"):
        change_metadata(copied / name, precision="32-true")

    def larger_norm(line: dict[str, Any]) -> None:
        line["grad_norm"] += 0.1

    change(copied / "ddp", "step", 3, larger_norm)
    comparison = compare(copied / "single", copied / "ddp")
    assert comparison.within_tolerance
    assert 0.01 < comparison.max_diff < 0.2
    assert comparison.verdict.startswith("drifts to ")
    assert "expected: within 0.0001 in the first 3 steps" in comparison.text()
    change(copied / "ddp", "step", 3, lambda line: line.pop("loss_sum"))
    assert first_of(compare(copied / "single", copied / "ddp"))[1] == "epoch 1, step 4, loss_sum: "
    change(copied / "ddp", "step", 2, larger_norm)
    assert first_of(compare(copied / "single", copied / "ddp"))[1] == "epoch 1, step 3, grad_norm: "


def test_differences_are_absolute_below_1_and_relative_above() -> None:
    assert difference(0.5, 0.25) == 0.25
    assert difference(200.0, 100.0) == 0.5
    assert difference("a", "a") == difference(None, None) == 0.0
    assert math.isinf(difference("a", "b"))
    assert math.isinf(difference(math.nan, 1.0))
    assert math.isinf(difference(math.nan, math.nan))
    assert math.isinf(difference(None, 0.0))


def test_runs_without_training_are_compared_by_their_results(tmp_path: Path) -> None:
    runs = tmp_path / "a", tmp_path / "b"
    for run in runs:
        run.mkdir()
    for results, first in (({"test/acc": 0.75}, "0.75 (by 2.5e-01)"), ({}, "'missing'")):
        for run, values in zip(runs, ({"test/acc": 0.5}, results), strict=True):
            (run / "metrics.json").write_text(json.dumps(run_metadata(**values)))
        divergence = compare(*runs).first_divergence
        assert divergence is not None
        assert divergence.first == f"metrics.json, test/acc: 0.5 against {first}"
    (runs[0] / "metrics.json").write_text(json.dumps(run_metadata()))
    with pytest.raises(ConfigError, match="nothing in common"):
        compare(*runs)


def test_unfinished_runs_are_named(copied: Path) -> None:
    for name in ("single", "ddp"):
        record = copied / name / "record.jsonl"
        lines = [line for line in record.read_text().splitlines(keepends=True) if '"tensor"' not in line]
        record.write_text("".join(lines))
    assert "neither run finished" in compare(copied / "single", copied / "ddp").text()


def test_bounds_are_those_of_the_docs() -> None:
    assert (IDENTICAL.within, FLOAT64.within, FLOAT32.within, MIXED.within) == (0.0, 1e-10, 1e-4, 0.1)
    assert (IDENTICAL.steps, FLOAT64.steps, FLOAT32.steps, MIXED.steps) == (math.inf, math.inf, 3, 3)
