"""The raw engine in this process: what it leaves is what Lightning leaves, and each reads the other's checkpoints."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lockstep.compare import compare
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.raw import trainer
from lockstep.raw.trainer import Precision
from lockstep.record.fingerprint import digest
from lockstep.run_files import Metrics
from lockstep.steps.step_outputs import backward
from tests.comparing import require_identical
from tests.conftest import IN_PROCESS, MakePlan
from tests.rank_helpers import ALONE, ENGINES, on_ranks, with_engine

DIGITS = ("data.test_size=1655", "data.val_size=12", "batch_size=12", "threads=1", "accelerator=cpu")
SMALL = (*DIGITS, "model.net.hidden=[16]")
pytestmark = IN_PROCESS


def trained(engine: str, plan: Plan, folder: str | None = None) -> Metrics:
    """Run the plan by one engine, in a folder of that name."""
    return ENGINES[engine](with_engine(plan, engine, Path(plan.run_dir) / (folder or engine)), ALONE)


SETTINGS = [
    ("precision=bf16-mixed", "accumulate_grad_batches=3", "model.net.hidden=[16]"),
    ("precision=64-true", "gradient_clip_val=1.0", "strategy=dp", "devices=3", "model.net.hidden=[16]"),
    ("strategy=dp", "devices=2", "precision=bf16-mixed", "model=lenet"),
    ("model=split_cnn", "strategy=model_parallel", "devices=4", "strategy.micro_batches=5"),
]


@pytest.mark.parametrize("setting", SETTINGS, ids=" ".join)
def test_records_and_metrics_are_lightnings(setting: tuple[str, ...], make_plan: MakePlan) -> None:
    """In settings that test_parity_matrix.py does not have."""
    plan = make_plan(*DIGITS, "max_epochs=2", "logger=none", *setting)
    lightning, raw = trained("lightning", plan), trained("raw", plan)
    require_identical(Path(plan.run_dir) / "lightning", Path(plan.run_dir) / "raw")
    assert lightning.keys() == raw.keys()
    differs = {key for key in lightning if lightning[key] != raw[key]}
    assert differs <= {"engine", "train_seconds", "samples_per_second"}


def test_checkpoints_hold_the_same(make_plan: MakePlan) -> None:
    plan = make_plan(*SMALL, "max_epochs=3", "optimizer=sgd", "optimizer.lr=3", "logger=none", "seed=1")
    for name in ENGINES:
        trained(name, plan)
    for file in ("best.ckpt", "last.ckpt"):
        paths = [Path(plan.run_dir) / name / "checkpoints" / file for name in ENGINES]
        lightning, raw = (torch.load(path, weights_only=True) for path in paths)
        assert raw["state_dict"].keys() == lightning["state_dict"].keys()
        assert all(key.startswith("net.") and "module." not in key for key in raw["state_dict"])
        assert digest(raw["state_dict"]) == digest(lightning["state_dict"])
        assert (raw["epoch"], raw["global_step"]) == (lightning["epoch"], lightning["global_step"])
    assert not list(Path(plan.run_dir).rglob(".*.part"))


@pytest.mark.parametrize(
    ("overrides", "pairs"),
    [
        ((), [("lightning", "raw"), ("raw", "lightning")]),
        (("optimizer=sgd", "optimizer.momentum=0.9", "scheduler=onecycle"), [(name, name) for name in ENGINES]),
        (("precision=64-true",), [("lightning", "raw"), ("raw", "lightning")]),
    ],
)
def test_one_engine_goes_on_where_another_stopped(
    overrides: tuple[str, ...], pairs: list[tuple[str, str]], make_plan: MakePlan
) -> None:
    """Two epochs by one and two more by the other are bit for bit four by the raw engine. Each two meet once."""
    plan = make_plan(*SMALL, "logger=none", *overrides, "max_epochs=4")
    uninterrupted = trained("raw", plan, "uninterrupted")
    for first, second in pairs:
        half = stopped_after_two(plan, first)  # a schedule is made for all four epochs
        resumed = trained(second, replace(plan, ckpt_path=str(half)), f"{second} resumed")
        assert resumed["digest"] == uninterrupted["digest"]
        assert (resumed["epochs"], resumed["steps"]) == (4, 44)
        folder = Path(plan.run_dir) / f"{second} resumed"
        steps = compare(folder, folder).quantities["loss"].compared
        assert steps == 22, "the record is of the two epochs that this run trained"


def stopped_after_two(plan: Plan, engine: str) -> Path:
    """Return a copy of the checkpoint that a run of four epochs saves after two."""
    path, save = Path(plan.run_dir) / "half.ckpt", torch.save

    def saving(content: Any, *arguments: Any, **options: Any) -> None:
        save(content, *arguments, **options)
        if isinstance(content, dict) and content.get("epoch") == 1:
            save(content, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "save", saving)
        trained(engine, plan, f"{engine} half")
    return path


@pytest.mark.parametrize(
    "schedule",
    [("scheduler=onecycle", "scheduler.warmup_fraction=0.5"), ("scheduler=warmup_linear", "scheduler.warmup_steps=10")],
)
def test_schedules_can_be_resumed_for_longer(schedule: tuple[str, str], make_plan: MakePlan) -> None:
    plan = make_plan("max_epochs=2", "accelerator=cpu", "logger=csv", "test=false", *schedule)
    half = Path(plan.run_dir) / "lightning" / "checkpoints" / "last.ckpt"
    first = trained("lightning", plan)
    resumed = trained("lightning", replace(plan, max_epochs=4, ckpt_path=str(half)), "resumed")
    assert (first["steps"], resumed["steps"]) == (40, 80)
    speed = 2 * 1257 / resumed["train_seconds"]  # type: ignore[operator]
    assert resumed["samples_per_second"] == pytest.approx(speed), "two epochs were trained in this run"


OTHER_STRATEGIES = [
    ("strategy=single", "devices=1"),
    ("strategy=dp", "devices=2"),
    ("strategy=model_parallel", "devices=2"),
]


@pytest.mark.parametrize(
    ("engine", "precision"), [("lightning", "32-true"), pytest.param("raw", "64-true", marks=pytest.mark.slow)]
)
def test_checkpoints_load_under_any_other_strategy(engine: str, precision: str, make_plan: MakePlan) -> None:
    """Trained on two ranks by one engine, tested under each strategy by both."""
    split = ("model=split_cnn", *DIGITS, "logger=none", "max_epochs=1", f"precision={precision}")
    plan = make_plan(*split, "strategy=ddp", "devices=2")
    by_ranks = with_engine(plan, engine, Path(plan.run_dir) / "ddp")
    metrics = on_ranks(by_ranks, one_engine)
    last = Path(by_ranks.run_dir) / "checkpoints" / "last.ckpt"
    for world in OTHER_STRATEGIES:
        for name in ENGINES:
            plan = replace(make_plan(*split, *world), train=False, ckpt_path=str(last))
            tested = trained(name, plan, f"{name}-{world[0]}")
            assert tested["digest"] == metrics["digest"]
            assert tested["test/acc"] == metrics["test/acc"]
            assert (tested["epochs"], tested["steps"]) == (0, 0), "this run trained nothing"
            assert tested["test/loss"] == pytest.approx(metrics["test/loss"], rel=1e-5)


def one_engine(plan: Plan, place: RankContext) -> Metrics:
    return ENGINES[plan.engine.name](plan, place)


class CpuScaling(Precision):
    """Losses scaled on a CPU, too."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        super().__init__(plan, device)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        self.scale = self.scaler.scale


def test_the_scalers_state_is_saved_and_restored(make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts the steps since the last overflow: 11 of each epoch. A checkpoint without it begins anew."""
    monkeypatch.setattr(trainer, "Precision", CpuScaling)
    plan = make_plan(*SMALL, "max_epochs=2", "logger=none", "test=false")
    file = Path(plan.run_dir) / "raw" / "checkpoints" / "last.ckpt"
    trained("raw", replace(plan, max_epochs=1))
    half = torch.load(file, weights_only=True)
    assert (half["MixedPrecision"]["scale"], half["MixedPrecision"]["_growth_tracker"]) == (2.0**10, 11)
    for name, state, steps in (("with", {}, 22), ("without", {"MixedPrecision": None}, 11)):
        torch.save(
            {key: value for key, value in half.items() if key not in state}, path := Path(plan.run_dir) / f"{name}.ckpt"
        )
        trained("raw", replace(plan, ckpt_path=str(path)))
        assert torch.load(file, weights_only=True)["MixedPrecision"]["_growth_tracker"] == steps


def test_losses_are_scaled_where_float16_would_underflow(make_plan: MakePlan) -> None:
    """A gradient of 2^-26 is nothing in float16; scaled by 2^16 it is there, and `unscale` gives it back."""
    plan = replace(make_plan(*SMALL), precision="16-mixed", accelerator="gpu")
    precision = Precision(plan, torch.device("cpu"))
    assert precision.scale is not None
    weight = nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    with precision.forward_context():
        loss = weight.half() * 2.0**-13
    precision.scale(loss.float() * 2.0**-13).backward()  # type: ignore[no-untyped-call]
    precision.unscale(optimizer)
    assert weight.grad is not None
    assert weight.grad.item() == 2.0**-26
    precision.step(optimizer, lambda: loss)
    assert weight.item() == -(2.0**-26)
    weight.grad = torch.tensor(torch.inf)
    precision.unscale(optimizer)
    precision.step(optimizer, lambda: loss)
    assert weight.item() == -(2.0**-26), "a step that overflowed is left out"


def test_a_gradient_begins_with_the_current_scale() -> None:
    """Loss 3w, a factor of ½: gradients 3/2 times the scale, which float16 changes where it overflows: 12, then 6."""
    scale = [8.0]
    weight = torch.ones((), requires_grad=True)
    for expected in (12.0, 6.0):
        weight.grad = None
        backward(3 * weight, 0.5, 1, lambda loss: loss * scale[0])
        assert weight.grad is not None
        assert weight.grad.item() == expected
        scale[0] /= 2


def test_losses_of_other_shapes() -> None:
    weight = torch.ones(2, requires_grad=True)
    for loss in ((3 * weight).sum(), (3 * weight).sum().view(1)):
        backward(loss, 1.0, 1, None)
    assert weight.grad is not None
    assert weight.grad.tolist() == [6.0, 6.0]
    with pytest.raises(RuntimeError, match="scalar outputs"):
        backward(3 * weight, 1.0, 1, None)
