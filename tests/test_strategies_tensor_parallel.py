"""strategy=tensor_parallel computes what `single` computes: all samples on each rank, and parts of layers."""

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor.parallel import RowwiseParallel
from torch.optim import Adafactor, AdamW

from lockstep.base.config_error import ConfigError
from lockstep.base.errors import TrainingInterrupted
from lockstep.base.random_state import seed_all
from lockstep.engine import session
from lockstep.engine.step import ModuleStep
from lockstep.engine.training import TrainingCallback
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.runs.compare import compare
from lockstep.strategies.tensor_parallel import TensorParallel
from tests.comparing import require_close
from tests.conftest import IN_PROCESS
from tests.inspections import plan_here
from tests.rank_helpers import StopAfter, run_named, run_plan

pytestmark = [*IN_PROCESS, pytest.mark.timeout(900)]

COMMON = (
    *("optimizer=adamw_groups", "accumulate_grad_batches=2", "gradient_clip_val=0.5", "precision=64-true", "threads=1"),
    *("accelerator=cpu", "logger=none", "memory_format=contiguous", "record.weights=step", "seed=11", "test=true"),
)
DIGITS = (
    *("data=digits", "data.test_size=1735", "data.val_size=1", "batch_size=12", "max_epochs=2"),
    "trainer.limit_test_batches=2",
)
"""61 digits: six batches an epoch, the last of one sample."""
TOKENS = (
    *("model=transformer", "model.net.width=16", "model.net.layers=2", "data=text", "data.length=16", "batch_size=13"),
    *("max_epochs=1", "trainer.limit_train_batches=5", "trainer.limit_val_batches=2", "trainer.limit_test_batches=1"),
)
HERE = "tests.test_strategies_tensor_parallel"
JOBS: dict[str, Sequence[str]] = {
    "mlp": ("model=mlp", "model.net.hidden=[32,20,16]", *DIGITS),
    "transformer": ("model.net.dropout=0", *TOKENS),
    "attention": ("model.net.dropout=0.1", *TOKENS),
    "dropped": ("model=mlp", f"model.net._target_={HERE}.Dropped", "~model.net.hidden", *DIGITS),
}
PLANS = {"dropped": "strategy.plan={net.layers.0: colwise, net.layers.2: rowwise}"}
STOPPED_AFTER = 3
"""Batches: of the second step in two."""


class Dropped(nn.Module):
    """Two layers that are divided, and dropout of parts, and where all ranks have all numbers."""

    def __init__(self, sample_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__()
        inputs = sample_shape[0] * sample_shape[1] * sample_shape[2]
        self.layers = nn.Sequential(nn.Linear(inputs, 12), nn.Dropout(0.4), nn.Linear(12, 8), nn.Dropout(0.5))
        self.last = nn.Linear(8, num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layers(x.flatten(1)))  # type: ignore[no-any-return]


def plan_of(folder: Path, job: str, devices: int, *words: str) -> Plan:
    folder.mkdir()
    if devices > 1 and job in PLANS and "strategy=ddp" not in words:
        words = (PLANS[job], *words)
    if not any(word.startswith("strategy=") for word in words):
        words = (*words, "strategy=tensor_parallel" if devices > 1 else "strategy=single")
    return plan_here([*JOBS[job], *COMMON, f"devices={devices}", *words], folder)


def save_again(self: TrainingCallback, trainer: Any, module: Any) -> None:
    """Save what is restored, before a step."""
    RESTORE(self, trainer, module)
    trainer.save_checkpoint(Path(self.plan.run_dir) / "checkpoints" / "again.ckpt")


def left_apart(layouts: Any, is_local: bool, module: Any, outputs: Any, mesh: Any) -> Any:
    """Return this rank's part of a sum."""
    return outputs.to_local()


RESTORE, WEIGHT = TrainingCallback.on_train_start, ModuleStep.loss_weight
PLANTED: dict[str, tuple[Any, str, Any]] = {
    "counted": (Plan, "reports", lambda *_: True),
    "doubled": (ModuleStep, "loss_weight", lambda *arguments: 2 * WEIGHT(*arguments)),
    "unsummed": (RowwiseParallel, "_prepare_output_fn", staticmethod(left_apart)),
    "drifted": (session, "seed_rank", lambda seed, _: seed_all(seed + dist.get_rank())),
    "saved again": (TrainingCallback, "on_train_start", save_again),
}


def run_one(name: str, plan: Plan, context: RankContext) -> None:
    with ExitStack() as stack:
        if planted := next((PLANTED[key] for key in PLANTED if name.startswith(key)), None):
            stack.enter_context(patch.object(*planted))
        if name.startswith("stopped"):
            stack.enter_context(pytest.raises(TrainingInterrupted))
            context = replace(context, stop=StopAfter(STOPPED_AFTER))
        run_plan(plan, context)


def start(folder: Path, devices: int, runs: Mapping[str, tuple[str, Sequence[str]]]) -> None:
    """Run jobs of one world by one start of its ranks, each in the folder of its name."""
    plans = {name: plan_of(folder / name, job, devices, *words) for name, (job, words) in runs.items()}
    run_named(plans, folder, run_one)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tensor")
    start(folder, 1, {f"{job} 1": (job, ()) for job in JOBS})
    planted = {"counted": ("mlp", ()), "doubled": ("mlp", ()), "unsummed": ("mlp", ()), "drifted": ("dropped", ())}
    start(folder, 2, {**{f"{job} 2": (job, ()) for job in JOBS}, **planted})
    return folder


@pytest.mark.slow
def test_masks_are_those_of_single(runs: Path) -> None:
    """Of the parts of divided layers, too, of which each rank has another part."""
    for job in ("dropped", "attention"):
        require_close(runs / f"{job} 1", runs / f"{job} 2")
        assert str(compare(runs / f"{job} 1", runs / f"{job} 2").tolerance) == "within 1e-10"


FOUND = {
    "counted": ("samples", "epoch 1, step 1, samples"),
    "doubled": ("gradient norm", "epoch 1, step 1, grad_norm"),
    "unsummed": ("loss", "epoch 1, step 1, loss_sum"),
    "drifted": ("ranks of one run", "epoch 1, step 1, replicated of ranks 0 and 1 in "),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_planted_errors_are_found(name: str, runs: Path) -> None:
    quantity, place = FOUND[name]
    comparison = compare(runs / ("dropped 1" if name == "drifted" else "mlp 1"), runs / name)
    assert not comparison.within_tolerance
    assert str(comparison.quantities[quantity].first).startswith(place), comparison.text()


def saved(run: Path, name: str = "last.ckpt") -> dict[str, Any]:
    """Return what a checkpoint has of weights and optimizers, but for the kernels of each layout."""
    checkpoint: dict[str, Any] = torch.load(run / "checkpoints" / name, weights_only=True)
    for group in checkpoint["optimizer_states"][0]["param_groups"]:
        del group["foreach"], group["fused"]
    return {key: checkpoint[key] for key in ("state_dict", "optimizer_states")}


@pytest.mark.slow
def test_stopped_within_a_step_single_goes_on_and_back(runs: Path) -> None:
    """A file has full tensors, and what is restored are their bits; the bits of the same layout stay to the end."""
    for job, devices in (("mlp", 1), ("transformer", 2)):
        start(runs, devices, {f"stopped {job} {devices}": (job, ())})
    for job, first, second in (("mlp", 1, 2), ("transformer", 2, 1), ("transformer", 2, 2)):
        stopped, again = runs / f"stopped {job} {first}", f"saved again by {second}, {job}"
        start(runs, second, {again: (job, (f"ckpt_path='{stopped}/checkpoints/last.ckpt'",))})
        torch.testing.assert_close(saved(runs / again, "again.ckpt"), saved(stopped), rtol=0, atol=0)
        tolerance = 0 if first == second else 1e-10
        torch.testing.assert_close(saved(runs / again), saved(runs / f"{job} {first}"), rtol=0, atol=tolerance)


REFUSED = {
    "devices=3": r"strategy.plan.net.layers.0=colwise: 3 ranks do not divide its out_features=32; write another size",
    "strategy.plan={net.layer: colwise}": r"strategy.plan.net.layer=colwise: no layer has such a name; write 'strat",
    "strategy.plan={net.layers.1: colwise}": r"strategy.plan.net.layers.1=colwise: it is a ReLU, and Linear and Emb",
    "strategy.plan={net.layers.0: column}": r"strategy.plan.net.layers.0=column: there is no such style; write str",
    "strategy.plan={net.layers.0: colwise}": r"strategy.plan={net.layers.0:colwise}: a colwise Linear and the rowwise",
    "model=linear": r"strategy.plan=null: neither Classifier nor its net has a method tensor_parallel_plan; write",
    "compile=true": r"compile=true: strategy=tensor_parallel divides layers by hooks, which were never compiled",
    "sync_batchnorm=true": r"sync_batchnorm=true: all ranks normalize the same batch; write sync_batchnorm=false",
}
LAYERS = {
    "model.net.heads=1": r"model.net.heads=1: 2 ranks do not divide it; write devices=1",
    "strategy.plan={net.head.1: rowwise}": r"strategy.plan.net.head.1=rowwise: its weight is another layer's, too",
}


@pytest.mark.parametrize("words", [*REFUSED, *LAYERS])
def test_what_ranks_cannot_divide_is_refused_before_work_starts(words: str, tmp_path: Path) -> None:
    job = JOBS["mlp" if words in REFUSED else "transformer"]
    sentence = re.escape(REFUSED.get(words) or LAYERS[words])
    typed = [*([] if words == "model=linear" else job), "strategy=tensor_parallel", "devices=2", "accelerator=cpu"]
    typed += ["data=digits"] if words == "model=linear" else []
    with pytest.raises(ConfigError, match=f"^{sentence}"):
        plan_here([*typed, words], tmp_path)


def test_dropout_in_parts_and_optimizers_of_full_matrices_are_refused() -> None:
    strategy = TensorParallel("tensor_parallel", {"0": "colwise", "3": "rowwise"})
    net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.AlphaDropout(0.1), nn.Linear(4, 2))
    sentence = "dropout of 2=0.1: AlphaDropout between divided layers would drop the same places of different parts"
    with pytest.raises(ConfigError, match=f"^{sentence}"):
        strategy.check_module(net, 2)
    plan: Any = None
    with pytest.raises(ConfigError, match=r"^strategy=tensor_parallel: Adafactor computes with rows and columns"):
        strategy.prepare_optimizers(plan, [Adafactor(net.parameters())])
    optimizer = AdamW(net.parameters(), foreach=True)
    strategy.prepare_optimizers(plan, [optimizer])
    assert optimizer.param_groups[0]["foreach"] is False
