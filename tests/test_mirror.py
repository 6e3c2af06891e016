"""The engines against an independent program: tests/mirror, which shares no line with them that decides a number."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.launch.start import start_ranks
from lockstep.plan import Plan
from lockstep.schemas.plan_json import to_json
from lockstep.schemas.run import ENGINES
from tests.checkpoints import net_state
from tests.comparing import lines
from tests.conftest import MakeUserPlan
from tests.mirror import Job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

DIGITS = ("data=digits", "max_epochs=2")
FEW = "trainer.limit_train_batches=5"
CELLS: dict[str, Sequence[str]] = {
    "mlp": ("model=mlp", "batch_size=77", "accumulate_grad_batches=3", "gradient_clip_val=0.5", "optimizer=adamw"),
    "linear": ("model=linear", "optimizer=sgd", "scheduler=onecycle", "trainer.val_check_interval=3"),
    "lenet": ("model=lenet", FEW, "scheduler=warmup_linear", "scheduler.warmup_steps=2", "scale_lr=true"),
    "cnn": ("model=cnn", FEW, "memory_format=contiguous", "trainer.max_steps=7", "optimizer=adamw_groups"),
    "text": ("model=char_rnn", "data=text", "batch_size=13", FEW),
    "classifier": ("model=classifier", "data=blobs_data", "trainer.num_sanity_val_steps=2"),
    "manual": ("model=gan", "data=blobs_data"),
    "dictionaries": ("model=auto_encoder", "data=blobs", "batch_size=12"),
    "stream": ("model=regressor", "data=stream"),
    "thawed": ("model=late", "data=none"),
}
WORLDS = {"single": (), "ddp 2": ("strategy=ddp", "devices=2"), "ddp 3": ("strategy=ddp", "devices=3")}
PRECISIONS = {"float64": ("precision=64-true",), "float32": (), "bf16": ("precision=bf16-mixed",)}
CASES = [
    *((name, "ddp 2", "float64") for name in CELLS),
    *((name, "single", "float64") for name in ("mlp", "manual", "stream")),
    *(("mlp", "ddp 3", precision) for precision in PRECISIONS),
]


def mirrored(plan: Plan, folder: Path) -> Path:
    """Train once more by the mirror, in another folder."""
    folder.mkdir()
    world = replace(plan.world, folder=str(folder))
    config = plan.config.replace("fast_loop", "gradient_sync: ddp\n  fast_loop")
    metrics = start_ranks(Job(world, config, plan.summary(), to_json(plan)), "tests.mirror.run")
    (folder / "metrics.json").write_text(json.dumps(metrics))
    return folder


def trained(plan: Plan) -> Path:
    metrics = start_ranks(plan, ENGINES[plan.engine.name])
    (Path(plan.run_dir) / "metrics.json").write_text(json.dumps(metrics))
    return Path(plan.run_dir)


def numbers(run: Path) -> list[dict[str, Any]]:
    """Return all steps and validations of a record, and the metrics with a stage."""
    metrics = json.loads((run / "metrics.json").read_text())
    found = {name: metrics[name] for name in metrics if "/" in name or name in ("best_epoch", "monitor", "steps")}
    return [*lines(run, "step"), *lines(run, "validation"), found]


def furthest(left: Path, right: Path) -> float:
    """Return the largest difference of two runs in steps, logged values, metrics and weights; texts must be equal."""
    differences = [0.0]
    for ours, theirs in zip(numbers(left), numbers(right), strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            pairs = [(value, theirs[name])]
            if isinstance(value, dict):
                pairs = [(value[key], theirs[name][key]) for key in value]
            for a, b in pairs:
                if isinstance(a, float) and isinstance(b, float):
                    differences.append(abs(a - b) / max(1.0, abs(a)))
                else:
                    assert a == b, name
    weights = [net_state(run / "checkpoints" / "last.ckpt") for run in (left, right)]
    assert weights[0].keys() == weights[1].keys()
    pairs_of_weights = [(weights[0][name].double(), weights[1][name].double()) for name in weights[0]]
    return max(*differences, *(float((a - b).abs().max()) for a, b in pairs_of_weights))


@pytest.mark.parametrize(("name", "world", "precision"), CASES)
def test_it_computes_the_same(
    name: str, world: str, precision: str, make_user_plan: MakeUserPlan, tmp_path: Path
) -> None:
    """In each case to 1e-12, whatever the precision: the arithmetic has one order. Another seed is another run."""
    plan = make_user_plan(*DIGITS, *CELLS[name], *WORLDS[world], *PRECISIONS[precision], "engine.fast_loop=false")
    run = trained(plan)
    assert furthest(run, mirrored(plan, tmp_path / "mirror")) < 1e-12
    if (name, world) == ("mlp", "ddp 2"):
        other = replace(plan, config=plan.config.replace("seed: 42", "seed: 43"))
        assert furthest_or_apart(run, mirrored(other, tmp_path / "other")) > 1e-3


def furthest_or_apart(left: Path, right: Path) -> float:
    try:
        return furthest(left, right)
    except AssertionError:  # other samples
        return torch.inf
