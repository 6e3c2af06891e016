"""strategy=pipeline: the parts of a net on ranks compute what one process does."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from lockstep.base.config_error import ConfigError
from lockstep.engine import run
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.runs.compare import compare
from lockstep.strategies.parallel.pipeline import PartOfPipeline
from lockstep.strategies.parallel.tensor_layout import parameters_of
from tests.comparing import require_close, require_identical
from tests.conftest import IN_PROCESS
from tests.inspections import plan_here
from tests.rank_helpers import ALONE, run_named, run_raw, stop_after

pytestmark = [*IN_PROCESS, pytest.mark.timeout(900)]

TRANSFORMER = (
    *("model=transformer", "model.net.width=16", "model.net.layers=3", "model.net.heads=2", "model.net.dropout=0"),
    *("data=text", "data.length=16", "batch_size=13"),
)
"""Five batches; with an embedding whose weights are those of the last layer, on another rank."""
DROPOUT = "model.net.dropout=0.1"
JOB = [
    *("optimizer=adamw_groups", "accumulate_grad_batches=2", "gradient_clip_val=0.5", "max_epochs=1"),
    *("trainer.limit_train_batches=5", "trainer.limit_val_batches=2", "trainer.limit_test_batches=1"),
    *("precision=64-true", "threads=1", "accelerator=cpu", "logger=none", "record.weights=step"),
]
STOPPED_AFTER = 3
"""Batches: of the second step in two."""


def plan_of(folder: Path, strategy: str, *words: str, devices: int = 2) -> Plan:
    folder.mkdir()
    return plan_here([*TRANSFORMER, *JOB, f"strategy={strategy}", f"devices={devices}", *words], folder)


def lose_one(original: Any, part: PartOfPipeline, passes: Sequence[Any], gradient: Tensor) -> None:
    """Planted: the gradient of the first micro-batch gets lost."""
    rows = len(passes[0][1]) if part.rank == part.last else 0
    original(part, passes, torch.cat([torch.zeros_like(gradient[:rows]), gradient[rows:]]))


def keep_apart(part: PartOfPipeline, before: Mapping[Tensor, Tensor | None]) -> None:
    """Planted: each rank keeps its own gradient of a weight that two ranks use."""
    for parameter, earlier in before.items():
        if earlier is not None and parameter.grad is not None:
            parameter.grad = earlier + parameter.grad


PLANTED = {
    "a lost micro-batch": ("backward", lose_one),
    "tied weights apart": ("add_shared", keep_apart),
    "samples of each rank": ("reports", None),
    "a doubled gradient": ("data_size", None),
}


def planted(name: str) -> ExitStack:
    stack = ExitStack()
    method, function = PLANTED.get(name, ("", None))
    if method == "backward":
        wrong = partial(lose_one, PartOfPipeline.backward)
        stack.enter_context(patch.object(PartOfPipeline, method, lambda *all_: wrong(*all_)))
    elif method == "add_shared":
        stack.enter_context(patch.object(PartOfPipeline, method, function))
    elif method == "reports":
        stack.enter_context(patch.object(Plan, method, lambda *_: True))
    elif method:
        stack.enter_context(patch.object(Plan, method, property(lambda plan: plan.world_size)))
    return stack


def run_one(name: str, plan: Plan, context: RankContext) -> None:
    """On a rank: run a plan, and write to `state.json` how many numbers each rank has of weights and of state."""
    optimizers: set[Optimizer] = set()
    handle = register_optimizer_step_post_hook(lambda optimizer, *_: optimizers.add(optimizer))
    with handle, planted(name):
        if name in ("stopped", "begun"):
            plan = stop_after(STOPPED_AFTER, plan, context)
        if name != "begun":
            run(plan, context)
    states = [state for optimizer in optimizers for state in optimizer.state.values()]
    weights = {weight for optimizer in optimizers for weight in parameters_of(optimizer)}
    sizes: list[Any] = [0] * context.world_size
    here = sum(weight.numel() for weight in weights if not weight.is_meta)
    dist.all_gather_object(sizes, (here, sum(value.numel() for state in states for value in state.values())))
    (Path(plan.run_dir) / "state.json").write_text(json.dumps(sizes))


def alone(folder: Path, *words: str, strategy: str = "single", devices: int = 1) -> Path:
    run(plan_of(folder, strategy, *words, devices=devices), ALONE)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words: dict[str, Sequence[str]] = {
        "pipeline": (),
        "stopped": (DROPOUT,),
        "uninterrupted": (DROPOUT,),
        "recomputed": (DROPOUT, "strategy.recompute=true"),
        "begun": (),
    }
    folder = tmp_path_factory.mktemp("pipeline")
    all_words = {**words, **dict.fromkeys(PLANTED, ())}
    run_named({name: plan_of(folder / name, "pipeline", *each) for name, each in all_words.items()}, folder, run_one)
    alone(folder / "single")
    return folder


@pytest.mark.slow
def test_raw_computes_the_same(runs: Path, tmp_path: Path) -> None:
    run_raw(plan_of(tmp_path / "raw", "single", "engine=raw", devices=1), ALONE)
    require_close(runs / "pipeline", tmp_path / "raw")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "quantity"),
    [
        ("a lost micro-batch", "gradient norm"),
        ("tied weights apart", "gradient norm"),
        ("tied weights apart", "ranks of one run"),
        ("samples of each rank", "samples"),
        ("a doubled gradient", "gradient norm"),
    ],
)
def test_a_mistake_is_noticed_at_the_first_step(name: str, quantity: str, runs: Path) -> None:
    comparison = compare(runs / name, runs / "single")
    assert not comparison.within_tolerance
    assert str(comparison.quantities[quantity].first).startswith("epoch 1, step 1, "), comparison.text()


@pytest.mark.slow
def test_each_rank_has_its_part(runs: Path) -> None:
    ranks = json.loads((runs / "pipeline" / "state.json").read_text())
    total = 16 * (58 + 16) + 3 * (12 * 16**2 + 13 * 16) + 2 * 16  # of 58 tokens
    shared = 16 * 58
    assert sum(weights for weights, _ in ranks) == total + shared
    assert max(weights for weights, _ in ranks) < 0.7 * total
    assert all(state > 2 * weights for weights, state in ranks)  # two moments, and a counter for each


@pytest.mark.slow
def test_stopped_within_a_step_it_goes_on_to_the_same_bits(runs: Path) -> None:
    """Each part draws its own dropout masks, which the generators of a checkpoint repeat."""
    require_identical(runs / "stopped", runs / "uninterrupted")


@pytest.mark.slow
def test_a_second_forward_of_each_micro_batch_changes_no_bit(runs: Path) -> None:
    require_identical(runs / "recomputed", runs / "uninterrupted")


@pytest.mark.slow
def test_single_goes_on_with_its_checkpoint_within_a_step(runs: Path, tmp_path: Path) -> None:
    last = runs / "begun" / "checkpoints" / "last.ckpt"
    alone(tmp_path / "resumed", f"ckpt_path='{last}'")
    ends = [torch.load(run / "checkpoints" / "last.ckpt") for run in (tmp_path / "resumed", runs / "single")]
    for key in ("state_dict", "optimizer_states"):
        torch.testing.assert_close(ends[0][key], ends[1][key], rtol=0, atol=1e-10)


def test_what_it_cannot_divide_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^model=Linear: strategy=pipeline divides a net by its stages"):
        plan_here(["strategy=pipeline", "model=linear"], tmp_path)
    with pytest.raises(ConfigError, match=r"^devices=9: the net of MLP has 5 stages, .* write devices=5, or fewer"):
        plan_here(["strategy=pipeline", "devices=9"], tmp_path)
    with pytest.raises(ConfigError, match=r"^precision=16-mixed"):
        plan_here(["strategy=pipeline", "precision=16-mixed"], tmp_path)
    sentence = "strategy.schedule=1f1b: .* no micro-batch can go back before them; write strategy.schedule=gpipe"
    with pytest.raises(ConfigError, match=f"^{sentence}"):
        plan_here(["strategy=pipeline", "strategy.schedule=1f1b"], tmp_path)
