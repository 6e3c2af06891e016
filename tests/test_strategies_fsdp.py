"""strategy=fsdp computes what `single` computes: each rank with a shard of every weight."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.base.config_error import ConfigError
from lockstep.engine import run
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.runs.compare import compare
from lockstep.strategies.fsdp import FSDP
from tests.comparing import lines
from tests.conftest import IN_PROCESS, MakePlan, require_refused
from tests.inspections import plan_here
from tests.rank_helpers import run_named, stop_after

pytestmark = IN_PROCESS

TRAINING = [
    *("data=digits", "data.test_size=1735", "data.val_size=1", "model=lenet", "model.net.dropout=0", "optimizer=adam"),
    *("batch_size=12", "max_epochs=2", "accumulate_grad_batches=2", "gradient_clip_val=0.5", "seed=11"),
    *("threads=1", "accelerator=cpu", "logger=none", "trainer.limit_test_batches=2"),
]
"""61 digits: six batches an epoch, the last of one sample; two a step. One rank has no sample to validate."""

ALONE, SHARDED, FLOAT64 = ["strategy=single"], ["strategy=fsdp", "devices=2"], "precision=64-true"
STOPPED_AFTER = 5
"""Batches: a step is under way."""


def plan_of(folder: Path, *overrides: str) -> Plan:
    folder.mkdir(parents=True, exist_ok=True)
    return plan_here([*TRAINING, *overrides], folder)


def run_one(name: str, plan: Plan, context: RankContext) -> None:
    """On a rank: run a plan; what is called stopped is stopped and gone on with in shards."""
    if name.startswith("stopped"):
        plan = replace(stop_after(STOPPED_AFTER, plan, context), strategy=FSDP("fsdp"))
    run(plan, context)


def start(folder: Path, runs: dict[str, Sequence[str]]) -> None:
    """Run plans of one world by one start of its ranks, each in the folder of its name."""
    run_named({name: plan_of(folder / name, *overrides) for name, overrides in runs.items()}, folder, run_one)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three starts: single, fsdp, and single that resumes from what fsdp saved."""
    folder = tmp_path_factory.mktemp("fsdp")
    start(folder, {"single": (*ALONE, FLOAT64), "single-begun": (*ALONE, FLOAT64, "max_epochs=1")})
    path = f"ckpt_path={folder / 'single-begun' / 'checkpoints' / 'last.ckpt'}"
    shards = {
        "stopped-ddp": ("strategy=ddp", "devices=2", FLOAT64),
        "float32": SHARDED,
        "fsdp": (*SHARDED, FLOAT64),
        "stopped": (*SHARDED, FLOAT64),
        "after-single": (*SHARDED, FLOAT64, path),
    }
    start(folder, shards)
    at_the_stop = folder / "stopped" / "checkpoints" / "at-the-stop.ckpt"
    start(folder, {"single-after": (*ALONE, FLOAT64, f"ckpt_path={at_the_stop}")})
    return folder


def checkpoint(folder: Path) -> dict[str, Any]:
    saved: dict[str, Any] = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    return saved


def furthest(a: Path, b: Path) -> float:
    """The largest difference between the weights and moments in two runs' last checkpoints."""
    tensors = [
        [
            *saved["state_dict"].values(),
            *(value for entry in saved["optimizer_states"][0]["state"].values() for value in entry.values()),
        ]
        for saved in map(checkpoint, (a, b))
    ]
    return float(max((one - other).abs().max() for one, other in zip(*tensors, strict=True)))


@pytest.mark.slow
def test_in_float64_it_is_single(runs: Path) -> None:
    """Accumulated, clipped, with momentum, a ragged batch and an empty rank; gradient norms are of full tensors."""
    comparison = compare(runs / "single", runs / "fsdp")
    assert str(comparison.tolerance) == "within 1e-10"
    assert comparison.within_tolerance, comparison.text()
    assert comparison.quantities["gradient norm"].compared == 6


@pytest.mark.slow
def test_ranks_hold_shards_and_the_run_says_so(runs: Path) -> None:
    fingerprints = lines(runs / "float32", "fingerprint")
    assert len(fingerprints) == 2
    for line in fingerprints:
        assert line["sharded"] is True
        assert len({*line["weights"]}) == len({*line["optimizer"]}) == 2
        assert len({*line["buffers"]}) == 1
    state = checkpoint(runs / "float32")["state_dict"]
    assert state["net.features.0.weight"].shape == (10, 1, 5, 5)


@pytest.mark.slow
def test_stopped_within_a_step_it_goes_on_to_the_same_bits(runs: Path) -> None:
    uninterrupted, resumed = runs / "fsdp", runs / "stopped"
    saved = torch.load(resumed / "checkpoints" / "at-the-stop.ckpt", weights_only=True)
    assert all(rank["gradients"] for rank in saved["lockstep"]["ranks"])
    assert (resumed / "record.jsonl").read_text() == (uninterrupted / "record.jsonl").read_text()
    assert furthest(uninterrupted, resumed) == 0


@pytest.mark.slow
def test_checkpoints_of_single_and_fsdp_resume_each_other(runs: Path) -> None:
    """One of them stopped within a step. In float64, weights and Adam's moments."""
    assert 0 < furthest(runs / "single", runs / "after-single") < 1e-10
    assert 0 < furthest(runs / "single", runs / "single-after") < 1e-10


@pytest.mark.slow
def test_each_fingerprint_says_whether_it_is_of_shards(runs: Path, tmp_path: Path) -> None:
    """The first line of a record that another strategy goes on with is that strategy's."""
    gone_on = Path(shutil.copytree(runs / "fsdp", tmp_path / "gone-on"))
    first = (runs / "single" / "record.jsonl").read_text().partition("\n")[0]
    rest = (gone_on / "record.jsonl").read_text().partition("\n")[2]
    (gone_on / "record.jsonl").write_text(f"{first}\n{rest}")
    comparison = compare(runs / "single", gone_on)
    assert comparison.quantities["ranks of one run"].compared > 0
    assert not comparison.quantities["ranks of one run"].difference, comparison.text()


@pytest.mark.slow
def test_it_takes_the_mean_of_the_gradients_that_ranks_of_ddp_had(runs: Path) -> None:
    """DDP averages after the last batch of a step, and was stopped before it."""
    stopped = torch.load(runs / "stopped-ddp" / "checkpoints" / "at-the-stop.ckpt", weights_only=True)
    one, other = (rank["gradients"]["net.head.0.bias"] for rank in stopped["lockstep"]["ranks"])
    assert not torch.equal(one, other)
    assert 0 < furthest(runs / "single", runs / "stopped-ddp") < 1e-10


INVALID = {
    "memory_format=channels_last": "memory_format=channels_last: strategy=fsdp shards contiguous weights",
}


@pytest.mark.parametrize("words", INVALID)
def test_rejected_options(words: str, make_plan: MakePlan) -> None:
    require_refused(INVALID[words], make_plan, *SHARDED, *words.split())


def test_on_gpus_it_takes_nccl_and_no_loss_scaler(make_plan: MakePlan) -> None:
    plan = make_plan(*SHARDED, "accelerator=cpu")
    with pytest.raises(ConfigError, match=r"precision=16-mixed: its loss scaler would look at each rank's shard alone"):
        replace(plan, accelerator="gpu", precision="16-mixed")
    assert replace(plan, accelerator="gpu").world.backend == "nccl"
    with pytest.raises(ConfigError, match=r"process_group.backend=gloo: strategy=fsdp sends the shards .* by nccl"):
        replace(plan, accelerator="gpu", process_group=replace(plan.process_group, backend="gloo"))
