"""strategy=zero1: the bits of ddp, with a part of the optimizer state on each rank."""

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.optim import LBFGS, SGD, Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from lockstep.base.config_error import ConfigError
from lockstep.engine import run
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.runs.compare import compare
from lockstep.strategies import STRATEGIES
from lockstep.strategies.parallel.divided_optimizer import DividedOptimizer
from lockstep.strategies.zero1 import Zero1
from tests.comparing import lines, require_identical
from tests.conftest import IN_PROCESS
from tests.inspections import plan_here
from tests.rank_helpers import ALONE, run_named, run_raw, stop_after

pytestmark = [*IN_PROCESS, pytest.mark.timeout(900)]

JOB = [
    *(
        "model=transformer",
        "model.net.width=16",
        "model.net.layers=4",
        "model.net.heads=2",
        "data=text",
        "data.length=16",
    ),
    *("optimizer=adamw_groups", "batch_size=13", "accumulate_grad_batches=2", "gradient_clip_val=0.5", "max_epochs=1"),
    *(
        "trainer.limit_train_batches=5",
        "trainer.limit_val_batches=2",
        "trainer.limit_test_batches=1",
        "record.weights=step",
    ),
    *("precision=64-true", "threads=1", "accelerator=cpu", "logger=none", "memory_format=contiguous"),
]
PLAIN = "model.net.dropout=0"
NO_PLAN: Any = None
STOPPED_AFTER = 3
"""Batches: of the second step in two."""


class Clipped(SGD):
    """An optimizer that is not torch's."""


def plan_of(folder: Path, strategy: str, *words: str, devices: int = 2) -> Plan:
    folder.mkdir()
    return plan_here([*JOB, f"strategy={strategy}", f"devices={devices}", *words], folder)


def keep_updates(divided: DividedOptimizer, *_: object) -> None:
    """Planted: put the gradients back, and send no weights."""
    for parameter, gradient in divided.hidden.items():
        parameter.grad = gradient
    divided.hidden.clear()


def run_one(name: str, plan: Plan, context: RankContext) -> None:
    """On a rank: run a plan, and write to `state.json` how many numbers of state the optimizer of each rank has."""
    optimizers: set[Optimizer] = set()
    handle = register_optimizer_step_post_hook(lambda optimizer, *_: optimizers.add(optimizer))
    with handle, patch.object(DividedOptimizer, "_share_updates", keep_updates) if name == "unsent" else nullcontext():
        if name.startswith("stopped"):
            other = STRATEGIES[name.split()[-1]](name.split()[-1], share_device=False)  # type: ignore[call-arg]
            plan = replace(stop_after(STOPPED_AFTER, plan, context), strategy=other)
        (run_raw if plan.engine.name == "raw" else run)(plan, context)
    states = [state for optimizer in optimizers for state in optimizer.state.values()]
    sizes: list[int] = [0] * context.world_size
    dist.all_gather_object(sizes, sum(value.numel() for state in states for value in state.values()))
    (Path(plan.run_dir) / "state.json").write_text(json.dumps(sizes))


def start(folder: Path, words: Mapping[str, Sequence[str]], devices: int = 2) -> Path:
    """Run plans of one world by one start of its ranks, each in the folder of its name."""
    plans = {name: plan_of(folder / name, *each, devices=devices) for name, each in words.items()}
    run_named(plans, folder, run_one)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = {"ddp": ("ddp",), "zero1": ("zero1",), "raw": ("ddp", "engine=raw"), "unsent": ("zero1",)}
    return start(tmp_path_factory.mktemp("zero1"), words)


@pytest.fixture(scope="module")
def resumed(runs: Path) -> Path:
    words = {f"stopped {one}, gone on with by {other}": (one,) for one, other in (("zero1", "ddp"), ("ddp", "zero1"))}
    return start(runs, {**words, "begun": ("zero1", PLAIN)})


def test_it_has_the_bits_of_ddp(runs: Path) -> None:
    """With dropout, weight decay by groups, clipping, accumulation and a ragged batch; by both engines."""
    comparison = require_identical(runs / "zero1", runs / "ddp")
    assert {"loss", "gradient norm", "fingerprints", "parameters and buffers", "weights saved", "optimizer state"} <= {
        *comparison.quantities
    }
    require_identical(runs / "zero1", runs / "raw")


def test_weights_that_are_not_sent_are_noticed(runs: Path) -> None:
    comparison = compare(runs / "unsent", runs / "ddp")
    first = str(comparison.quantities["ranks of one run"].first)
    assert first.startswith("epoch 1, step 1, weights of ranks 0 and 1 in "), comparison.text()
    assert str(comparison.quantities["loss"].first).startswith("epoch 1, step 2, "), comparison.text()


def states(run: Path) -> list[float]:
    """Return the part of the state that each rank has, of two moments and a counter for each parameter."""
    sizes = json.loads((run / "state.json").read_text())
    undivided = json.loads((run.with_name("ddp") / "state.json").read_text())[0]
    return [size / undivided for size in sizes]


def test_each_rank_has_its_part_of_the_state(runs: Path) -> None:
    assert sum(states(runs / "zero1")) == pytest.approx(1)
    assert max(states(runs / "zero1")) <= 1.1 / 2
    assert states(runs / "ddp") == [1, 1]
    for line in lines(runs / "zero1", "fingerprint"):
        assert [len({*line[kind]}) for kind in ("weights", "buffers", "optimizer")] == [1, 1, 2]


@pytest.mark.slow
def test_on_four_ranks(tmp_path: Path) -> None:
    wide = ("precision=32-true", "model.net.width=32")
    words = {"ddp": ("ddp", *wide), "zero1": ("zero1", *wide), "raw": ("ddp", "engine=raw", *wide)}
    start(tmp_path, words, devices=4)
    require_identical(tmp_path / "zero1", tmp_path / "ddp")
    require_identical(tmp_path / "zero1", tmp_path / "raw")
    assert max(states(tmp_path / "zero1")) <= 1.1 / 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stopped zero1, gone on with by ddp", "stopped ddp, gone on with by zero1"])
def test_stopped_within_a_step_the_other_strategy_goes_on_to_the_same_bits(name: str, resumed: Path) -> None:
    require_identical(resumed / name, resumed / "ddp")


@pytest.mark.slow
def test_single_resumes_its_checkpoint(resumed: Path, tmp_path: Path) -> None:
    last = resumed / "begun" / "checkpoints" / "last.ckpt"
    for name, words in {"uninterrupted": (), "resumed": (f"ckpt_path='{last}'",)}.items():
        run(plan_of(tmp_path / name, "single", PLAIN, "max_epochs=2", *words, devices=1), ALONE)
    ends = [torch.load(tmp_path / name / "checkpoints" / "last.ckpt") for name in ("uninterrupted", "resumed")]
    for key in ("state_dict", "optimizer_states"):
        torch.testing.assert_close(ends[1][key], ends[0][key], rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", [LBFGS, Clipped])
def test_optimizers_that_may_compute_across_parameters_are_refused(kind: type[Any]) -> None:
    sentence = f"^strategy=zero1: {kind.__name__} may compute across parameters, .* write strategy=ddp, or an optimizer"
    with pytest.raises(ConfigError, match=sentence):
        Zero1("zero1", share_device=False).prepare_optimizers(NO_PLAN, [kind([nn.Parameter(torch.zeros(1))])])
