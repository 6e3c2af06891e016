"""strategy=fsdp computes what `single` computes: each rank with a shard of every weight, by both engines."""

import os
import pickle
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from lockstep.compare import compare
from lockstep.config_error import ConfigError
from lockstep.errors import TrainingInterrupted
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.run_files import Metrics
from lockstep.strategies.fsdp import FSDP
from tests.comparing import lines, require_identical
from tests.conftest import MakePlan, require_refused
from tests.inspections import plan_here
from tests.rank_helpers import ENGINES, StopAfter, on_ranks

TRAINING = [
    *("data=digits", "data.test_size=1735", "data.val_size=1", "model=lenet", "model.net.dropout=0", "optimizer=adam"),
    *("batch_size=12", "max_epochs=2", "accumulate_grad_batches=2", "gradient_clip_val=0.5", "seed=11"),
    *("threads=1", "accelerator=cpu", "logger=none", "test=true"),
]
"""61 digits: six batches an epoch, the last of one sample; two a step. One rank has no sample to validate."""

ALONE, SHARDED, FLOAT64 = ["strategy=single"], ["strategy=fsdp", "devices=2"], "precision=64-true"
STOPPED_AFTER = 5
"""Batches: a step is under way."""


def plan_of(folder: Path, *overrides: str) -> Plan:
    folder.mkdir(parents=True, exist_ok=True)
    return plan_here([*TRAINING, *overrides], folder)


def run_all(plan: Plan, context: RankContext) -> Metrics:
    """On a rank: every plan of this world; what is called stopped is stopped and gone on with in shards."""
    plans: list[Plan] = pickle.loads((Path(plan.run_dir) / "plans").read_bytes())
    for one in plans:
        engine, name = ENGINES[one.engine.name], Path(one.run_dir).name
        if name.startswith("stopped"):
            with pytest.raises(TrainingInterrupted):
                engine(one, replace(context, stop=StopAfter(STOPPED_AFTER)))
            last = Path(one.run_dir) / "checkpoints" / "last.ckpt"
            if context.rank == 0:
                os.link(last, last.with_name("at-the-stop.ckpt"))
            dist.barrier()
            one = replace(one, ckpt_path=str(last), resume=True, strategy=FSDP("fsdp", 0))
        engine(one, context)
    return {"runs": len(plans)}


def start(folder: Path, runs: dict[str, Sequence[str]]) -> None:
    """Run plans of one world by one start of its ranks, each in the folder of its name."""
    plans = [plan_of(folder / name, *overrides) for name, overrides in runs.items()]
    (folder / "plans").write_bytes(pickle.dumps(plans))
    on_ranks(replace(plans[0], run_dir=str(folder)), run_all)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three starts: single, fsdp, and single that resumes from what fsdp saved."""
    folder = tmp_path_factory.mktemp("fsdp")
    single = (*ALONE, "engine=raw")
    begun = (*single, FLOAT64, "max_epochs=1")
    start(folder, {"single-64": (*single, FLOAT64), "single-64-begun": begun})
    shards = {engine: (*SHARDED, f"engine={engine}") for engine in ENGINES}
    path = f"ckpt_path={folder / 'single-64-begun' / 'checkpoints' / 'last.ckpt'}"
    in_shards: dict[str, Sequence[str]] = {"stopped-ddp": ("strategy=ddp", "devices=2", "engine=raw", FLOAT64)}
    for engine, world in shards.items():
        in_shards |= {
            f"{engine}-32": world,
            f"{engine}-64": (*world, FLOAT64),
            f"stopped-{engine}": (*world, FLOAT64),
            f"after-single-{engine}": (*world, FLOAT64, path),
            f"{engine}-bf16": (*world, "precision=bf16-mixed", "max_epochs=1"),
        }
    start(folder, in_shards)
    at_the_stop = {engine: folder / f"stopped-{engine}" / "checkpoints" / "at-the-stop.ckpt" for engine in ENGINES}
    start(
        folder, {f"single-after-{name}": (*single, FLOAT64, f"ckpt_path={path}") for name, path in at_the_stop.items()}
    )
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


@pytest.mark.timeout(900)
def test_in_float64_it_is_single(runs: Path) -> None:
    """Accumulated, clipped, with momentum, a ragged batch and an empty rank; gradient norms are of full tensors."""
    for engine in ENGINES:
        comparison = compare(runs / "single-64", runs / f"{engine}-64")
        assert str(comparison.tolerance) == "within 1e-10"
        assert comparison.within_tolerance, comparison.text()
        assert comparison.quantities["gradient norm"].compared == 6


def test_the_engines_agree_bit_for_bit(runs: Path) -> None:
    """Also what each rank holds: the fingerprints of its shards."""
    for precision in ("32", "64", "bf16"):
        require_identical(runs / f"lightning-{precision}", runs / f"raw-{precision}")


def test_ranks_hold_shards_and_the_run_says_so(runs: Path) -> None:
    fingerprints = lines(runs / "raw-32", "fingerprint")
    assert len(fingerprints) == 2
    for line in fingerprints:
        assert line["sharded"] is True
        assert len({*line["weights"]}) == len({*line["optimizer"]}) == 2
        assert len({*line["buffers"]}) == 1
    state = checkpoint(runs / "raw-32")["state_dict"]
    assert state["net.features.0.weight"].shape == (10, 1, 5, 5)


@pytest.mark.parametrize("engine", ENGINES)
def test_stopped_within_a_step_it_goes_on_to_the_same_bits(engine: str, runs: Path) -> None:
    uninterrupted, resumed = runs / f"{engine}-64", runs / f"stopped-{engine}"
    saved = torch.load(resumed / "checkpoints" / "at-the-stop.ckpt", weights_only=True)
    assert all(rank["gradients"] for rank in saved["lockstep"]["ranks"])
    assert (resumed / "record.jsonl").read_text() == (uninterrupted / "record.jsonl").read_text()
    assert furthest(uninterrupted, resumed) == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_checkpoints_of_single_and_fsdp_resume_each_other(engine: str, runs: Path) -> None:
    """One of them stopped within a step. In float64, weights and Adam's moments."""
    assert 0 < furthest(runs / "single-64", runs / f"after-single-{engine}") < 1e-10
    assert 0 < furthest(runs / "single-64", runs / f"single-after-{engine}") < 1e-10


def test_each_fingerprint_says_whether_it_is_of_shards(runs: Path, tmp_path: Path) -> None:
    """The first line of a record that another strategy goes on with is that strategy's."""
    gone_on = Path(shutil.copytree(runs / "raw-64", tmp_path / "gone-on"))
    first = (runs / "single-64" / "record.jsonl").read_text().partition("\n")[0]
    rest = (gone_on / "record.jsonl").read_text().partition("\n")[2]
    (gone_on / "record.jsonl").write_text(f"{first}\n{rest}")
    comparison = compare(runs / "single-64", gone_on)
    assert comparison.quantities["ranks in step"].compared > 0
    assert not comparison.quantities["ranks in step"].difference, comparison.text()


def test_it_takes_the_mean_of_the_gradients_that_ranks_of_ddp_had(runs: Path) -> None:
    """DDP averages after the last batch of a step, and was stopped before it."""
    stopped = torch.load(runs / "stopped-ddp" / "checkpoints" / "at-the-stop.ckpt", weights_only=True)
    one, other = (rank["gradients"]["net.head.0.bias"] for rank in stopped["lockstep"]["ranks"])
    assert not torch.equal(one, other)
    assert 0 < furthest(runs / "single-64", runs / "stopped-ddp") < 1e-10


INVALID = {
    "engine=raw engine.gradient_sync=ring": "engine.gradient_sync=ring: strategy=fsdp reduces gradients to shards",
    "memory_format=channels_last": "memory_format=channels_last: strategy=fsdp shards contiguous weights",
    "strategy.max_restarts=-1": "strategy.max_restarts=-1: it must be 0 or more",
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
