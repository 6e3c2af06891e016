"""The raw engine in this process: what it leaves is what Lightning leaves, and each reads the other's checkpoints."""

import csv
import gc
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
import torch
from torch import nn

from lockstep.compare import compare
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.raw import training
from lockstep.raw.precision import Precision
from lockstep.record.digest import digest
from lockstep.run_files import Metrics
from lockstep.session.hooks import Hooks
from lockstep.steps.loss_weight import LossWeighting
from tests.conftest import MakePlan, events_of
from tests.rank_helpers import ENGINES, on_ranks, with_engine

ALONE = RankContext(rank=0, world_size=1, local_rank=0, local_world_size=1)
DIGITS = ("data.test_size=1655", "data.val_size=12", "batch_size=12", "threads=1", "accelerator=cpu")
SMALL = (*DIGITS, "model.hidden=[16]")
pytestmark = [
    pytest.mark.usefixtures("process_as_it_was"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]


def by(name: str, plan: Plan, folder: str | None = None) -> Metrics:
    """The plan by one engine, in a folder of that name."""
    return ENGINES[name](with_engine(plan, name, Path(plan.run_dir) / (folder or name)), ALONE)


SETTINGS = [
    ("accumulate_grad_batches=3",),
    ("gradient_clip_val=0.5", "optimizer=sgd"),
    ("scheduler=onecycle", "drop_last=true"),
    ("scheduler=warmup_linear", "scheduler.warmup_steps=3", "optimizer=adamw"),
    ("precision=bf16-mixed",),
    ("precision=64-true", "accumulate_grad_batches=2", "gradient_clip_val=1.0", "strategy=dp", "devices=3"),
    ("model=lenet",),
    ("model=cnn", "model.norm=batch"),
    ("data=line", "data.samples=50", "data.val_size=0", "model=linear", "optimizer=sgd"),
    ("data=points", "model=mlp", "batch_size=4"),
    ("strategy=dp", "devices=2", "precision=bf16-mixed", "model=lenet"),
    ("model=split_cnn", "strategy=model_parallel", "devices=4", "strategy.micro_batches=5"),
]


@pytest.mark.parametrize("setting", SETTINGS, ids=" ".join)
def test_every_setting_is_bit_for_bit_lightnings(setting: tuple[str, ...], make_plan: MakePlan) -> None:
    other = {override.split("=")[0] for override in setting} & {"data", "model"}
    common = [override for override in SMALL if override.split(".")[0] not in other]
    plan = make_plan(*common, "max_epochs=2", "logger=none", *setting)
    lightning, raw = by("lightning", plan), by("raw", plan)
    comparison = compare(Path(plan.run_dir) / "lightning", Path(plan.run_dir) / "raw")
    times = {"engine", "train_seconds", "samples_per_second"}
    assert comparison.verdict == "identical", comparison.text()
    assert lightning.keys() == raw.keys()
    assert {key: lightning[key] for key in lightning.keys() - times} == {key: raw[key] for key in raw.keys() - times}


def test_settings_on_two_ranks(make_plan: MakePlan) -> None:
    """no_sync, clipping and a schedule under DistributedDataParallel, and the cnn whose BatchNorm is of each rank."""
    common = (*DIGITS, "data.test_size=1725", "max_epochs=2", "strategy=ddp", "devices=2", "logger=none")
    plans = [make_plan(*common, *setting) for setting in TWO_RANKS]
    folder = Path(plans[0].run_dir)
    plans = [replace(plan, run_dir=str(folder / str(number))) for number, plan in enumerate(plans)]
    (folder / "plans").write_bytes(pickle.dumps(plans))
    on_ranks(replace(plans[0], run_dir=str(folder)), both_engines)
    for plan in plans:
        comparison = compare(Path(plan.run_dir) / "lightning", Path(plan.run_dir) / "raw")
        assert comparison.verdict == "identical", comparison.text()


TWO_RANKS = [
    ("accumulate_grad_batches=3", "gradient_clip_val=0.5", "scheduler=onecycle"),
    ("precision=bf16-mixed", "accumulate_grad_batches=2"),
    ("model=cnn", "model.norm=batch"),
    ("model=lenet",),
]


def both_engines(plan: Plan, place: RankContext) -> Metrics:
    """On a rank: every plan, by each engine."""
    plans: list[Plan] = pickle.loads((Path(plan.run_dir) / "plans").read_bytes())
    for one in plans:
        for name, run in ENGINES.items():
            run(with_engine(one, name, Path(one.run_dir) / name), place)
    return {"runs": len(plans)}


def scalars(folder: Path) -> dict[str, list[int]]:
    events = events_of(folder)
    return {tag: [event.step for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_has_the_same_tags(make_plan: MakePlan) -> None:
    plan = make_plan(*SMALL, "max_epochs=2", "log_every_n_steps=5", "scheduler=onecycle")
    lightning, raw = by("lightning", plan), by("raw", plan)
    theirs, ours = (scalars(Path(plan.run_dir) / name) for name in ("lightning", "raw"))
    assert ours.keys() == theirs.keys()
    assert {tag: sorted(steps) for tag, steps in ours.items()} == {tag: sorted(steps) for tag, steps in theirs.items()}
    assert ours["train/loss"] == ours["train/lr"] == ours["work/samples_per_second"] == [5, 10, 15, 20]
    assert ours["val/acc"] == [11, 22]
    for name in ("lightning", "raw"):
        events = events_of(Path(plan.run_dir) / name)
        for tag in ("train/loss", "train/lr"):
            theirs_too = events_of(Path(plan.run_dir) / "lightning")
            assert [event.value for event in events.Scalars(tag)] == [event.value for event in theirs_too.Scalars(tag)]
        files = (Path(plan.run_dir) / name / "tensorboard").glob("*/events*")
        hparams = b"".join(path.read_bytes() for path in files)
        assert b"_hparams_/session_start_info" in hparams
        assert b"optimizer.lr" in hparams
    assert lightning["test/acc"] == raw["test/acc"]


def test_csv_has_the_same_columns(make_plan: MakePlan) -> None:
    plan = make_plan(*SMALL, "max_epochs=2", "logger=csv", "log_every_n_steps=5")
    for name in ENGINES:
        by(name, plan)
    tables = []
    for name in ENGINES:
        with (Path(plan.run_dir) / name / "csv" / "metrics.csv").open() as file:
            tables.append(list(csv.DictReader(file)))
    theirs, ours = tables
    assert ours[0].keys() == theirs[0].keys()
    losses = [[(row["step"], float(row["train/loss"])) for row in rows if row["train/loss"]] for rows in tables]
    assert [step for step, _ in losses[0]] == [step for step, _ in losses[1]] == ["5", "10", "15", "20"]
    assert [loss for _, loss in losses[0]] == pytest.approx([loss for _, loss in losses[1]], rel=1e-6)


def test_checkpoints_hold_the_same(make_plan: MakePlan) -> None:
    plan = make_plan(*SMALL, "max_epochs=3", "optimizer=sgd", "optimizer.lr=3", "logger=none", "seed=1")
    for name in ENGINES:
        by(name, plan)
    for file in ("best.ckpt", "last.ckpt"):
        theirs, ours = (
            torch.load(Path(plan.run_dir) / name / "checkpoints" / file, weights_only=True) for name in ENGINES
        )
        assert ours["state_dict"].keys() == theirs["state_dict"].keys()
        assert all(key.startswith("net.") and "module." not in key for key in ours["state_dict"])
        assert digest(ours["state_dict"]) == digest(theirs["state_dict"])
        assert (ours["epoch"], ours["global_step"]) == (theirs["epoch"], theirs["global_step"])
    assert not list(Path(plan.run_dir).rglob(".*.part"))


@pytest.mark.parametrize(
    ("overrides", "pairs"),
    [
        ((), [("lightning", "raw"), ("raw", "lightning")]),
        (("optimizer=sgd", "optimizer.momentum=0.9", "scheduler=onecycle"), [(own, own) for own in ENGINES]),
        (("precision=64-true",), [("lightning", "raw"), ("raw", "lightning")]),
    ],
)
def test_one_engine_goes_on_where_another_stopped(
    overrides: tuple[str, ...], pairs: list[tuple[str, str]], make_plan: MakePlan
) -> None:
    """Two epochs by one and two more by the other are bit for bit four by the raw engine. Each two meet once."""
    plan = make_plan(*SMALL, "logger=none", *overrides, "max_epochs=4")
    whole = by("raw", plan, "whole")
    for first, second in pairs:
        half = stopped_after_two(plan, first)  # a schedule is made for all four epochs
        resumed = by(second, replace(plan, ckpt_path=str(half)), f"{second} resumed")
        assert resumed["digest"] == whole["digest"]
        assert (resumed["epochs"], resumed["steps"]) == (4, 44)
        own = Path(plan.run_dir) / f"{second} resumed"
        steps = compare(own, own).quantities["loss"].compared
        assert steps == 22, "the record is of the two epochs that this run trained"


def stopped_after_two(plan: Plan, engine: str) -> Path:
    """The checkpoint that a run of four epochs leaves after two, kept from being overwritten."""
    kept = Path(plan.run_dir) / "kept.ckpt"
    right = torch.save

    def saving(content: Any, *arguments: Any, **options: Any) -> None:
        right(content, *arguments, **options)
        if isinstance(content, dict) and content.get("epoch") == 1:
            right(content, kept)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "save", saving)
        by(engine, plan, f"{engine} kept")
    return kept


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
    trained = with_engine(plan, engine, Path(plan.run_dir) / "ddp")
    metrics = on_ranks(trained, one_engine)
    best = Path(trained.run_dir) / "checkpoints" / "last.ckpt"
    for own in OTHER_STRATEGIES:
        for name in ENGINES:
            plan = replace(make_plan(*split, *own), train=False, ckpt_path=str(best))
            tested = by(name, plan, f"{name}-{own[0]}")
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
    monkeypatch.setattr(training, "Precision", CpuScaling)
    plan = make_plan(*SMALL, "max_epochs=2", "logger=none", "test=false")
    file = Path(plan.run_dir) / "raw" / "checkpoints" / "last.ckpt"
    by("raw", replace(plan, max_epochs=1))
    half = torch.load(file, weights_only=True)
    assert (half["MixedPrecision"]["scale"], half["MixedPrecision"]["_growth_tracker"]) == (2.0**10, 11)
    for name, state, steps in (("with", {}, 22), ("without", {"MixedPrecision": None}, 11)):
        kept = {key: value for key, value in half.items() if key not in state}
        torch.save(kept, path := Path(plan.run_dir) / f"{name}.ckpt")
        by("raw", replace(plan, ckpt_path=str(path)))
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
    precision.step(optimizer, lambda: None)
    assert weight.item() == -(2.0**-26)
    weight.grad = torch.tensor(torch.inf)
    precision.unscale(optimizer)
    precision.step(optimizer, lambda: None)
    assert weight.item() == -(2.0**-26), "a step that overflowed is left out"


def test_a_gradient_begins_with_the_scale_of_its_own_batch() -> None:
    """Loss 3w, a factor of ½: gradients 3/2 times the scale, which float16 changes where it overflows: 12, then 6."""
    scale = [8.0]
    weighting = LossWeighting()
    weighting.weight = 0.5
    weight = torch.ones((), requires_grad=True)
    for expected in (12.0, 6.0):
        weight.grad = None
        weighting.backward(3 * weight, 1, lambda loss: loss * scale[0])
        assert weight.grad is not None
        assert weight.grad.item() == expected
        scale[0] /= 2


def test_losses_of_other_shapes() -> None:
    weighting, weight = LossWeighting(), torch.ones(2, requires_grad=True)
    for loss in ((3 * weight).sum(), (3 * weight).sum().view(1)):
        weighting.backward(loss, 1)
    assert weight.grad is not None
    assert weight.grad.tolist() == [6.0, 6.0]
    with pytest.raises(RuntimeError, match="scalar outputs"):
        weighting.backward(3 * weight, 1)


def test_a_step_is_not_kept_alive_by_what_is_known_of_it() -> None:
    def step(batch: object, batch_idx: int) -> None:
        """Take two arguments."""

    known, module = ref(step), SimpleNamespace(training_step=step)
    hooks = Hooks(trainer=None, module=module)
    assert hooks.step_arguments("training_step", "batch", 3, 0) == ("batch", 3)
    del step, module.training_step
    gc.collect()
    assert known() is None
