"""The bench: its arithmetic by hand, its goals, invalid input, its baselines, and one real run of the command."""

import csv
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.__main__ import HELP, BenchOptions, run_bench
from bench.measurement import INCONCLUSIVE, Measurement, bench_table, take_turns
from bench.runs import BenchContext
from bench.workloads import COUNTER, TRAINING, USER_CODE, WORKLOADS, Training, Variant
from lockstep.build import plan_from
from lockstep.command_line.compose import compose_job
from lockstep.config_error import ConfigError
from lockstep.entry_point import options
from lockstep.schemas.engine import ENGINES
from tests.conftest import Command

BENCH = (sys.executable, "-m", "bench")


@pytest.fixture
def context(tmp_path: Path) -> BenchContext:
    return BenchContext(quick=True, root="data", scratch=tmp_path)


def test_ratios_are_of_the_same_round() -> None:
    """3/2, 2/4, 6/3: 1.5, 0.5, 2; the ratio of the medians would be 1."""
    row = Measurement("linear", "raw", "s", (3.0, 2.0, 6.0), "source", (2.0, 4.0, 3.0))
    assert (row.ratios, row.score, row.goal_met) == ((1.5, 0.5, 2.0), 1.5, "")
    cells = row.csv_row()
    assert [cells[f"ratio_{name}"] for name in ("min", "median", "max")] == [0.5, 1.5, 2.0]
    assert [cells[name] for name in ("min", "median", "max", "rounds")] == [2.0, 3.0, 6.0, 3]
    with pytest.raises(ValueError, match="argument 2 is"):
        _ = Measurement("linear", "raw", "s", (3.0, 2.0), "source", (2.0,)).ratios


@pytest.mark.parametrize(
    ("ratios", "seconds", "met"),
    [
        ((0.50, 0.60), 0.61, "yes"),
        ((0.50, 0.60), 0.59, INCONCLUSIVE),  # the shortest timing is 0.295 s
        ((0.61, 0.72), 0.63, "no"),
        ((0.59, 0.61), 5.0, INCONCLUSIVE),  # its rounds are on both sides
        ((0.526, 0.628, 0.638), 5.0, INCONCLUSIVE),
    ],
)
def test_a_goal_of_at_most_0_6_is_judged_if_the_rounds_are_conclusive(
    ratios: tuple[float, ...], seconds: float, met: str
) -> None:
    values = tuple(ratio * seconds for ratio in ratios)
    row = Measurement("linear", "raw", "s", values, "source", (seconds,) * len(ratios), goal=0.6)
    assert row.goal_met == met == row.csv_row()["goal_met"]
    assert bench_table([row]).splitlines()[-1].endswith(f" {met}")


def test_variants_take_turns() -> None:
    order: list[str] = []
    reported: list[str] = []

    def variant(name: str) -> float:
        order.append(name)
        return float(len(order))

    variants: Any = {name: lambda name=name: variant(name) for name in "AB"}
    assert take_turns(variants, 2, reported.append) == {"A": (1.0, 3.0), "B": (2.0, 4.0)}
    assert order == ["A", "B", "A", "B"]
    assert reported[-1] == "round 2/2, B"


def test_a_row_for_each_goal(monkeypatch: pytest.MonkeyPatch, context: BenchContext) -> None:
    """The first run of all is not counted."""
    seconds = iter((9.0, 2.0, 1.0, 2.0, 1.5))
    monkeypatch.setattr(BenchContext, "train_seconds", lambda *_: next(seconds))
    training = Training({"source": Variant("source"), "raw": Variant("raw", {"source": 0.7})}, ())
    alone, beside = training.measure("linear", context)
    assert alone == Measurement("linear", "source", "s", (2.0, 2.0))
    assert beside == Measurement("linear", "raw", "s", (1.0, 1.5), "source", (2.0, 2.0), goal=0.7)


@pytest.mark.parametrize("name", TRAINING)
def test_goals_are_about_variants_of_the_same_work(name: str) -> None:
    training = TRAINING[name]
    assert {goal for variant in training.variants.values() for goal in variant.goals} < training.variants.keys()
    for variant in training.variants.values():
        words = [*training.overrides, *training.full, *variant.overrides, "engine=raw"]
        compose_job([word for word in words if not word.startswith("++model")])


MEASUREMENTS = [
    Measurement("linear", "source", "s", (2.0, 2.0)),
    Measurement("linear", "raw", "s", (1.0, 1.4), "source", (2.0, 2.0), goal=0.2),
    Measurement("linear", "raw", "s", (1.0, 1.4), "bare", (1.0, 1.0)),
    Measurement("startup", "ddp 2 - import", "s", (-0.5, -0.5), goal=1.5),
    Measurement("startup", "--help", "s", (0.5,), goal=1.0),
    Measurement("scaling", "ranks: 2", "calls", (90.0, 95.0), "ranks: 1", (100.0, 100.0)),
]


def test_the_table() -> None:
    [head, *lines] = bench_table(MEASUREMENTS).splitlines()
    assert head.split()[:3] == ["workload", "variant", "median"]
    assert lines[2].split()[-7:] == ["bare", "1.20", "1.00", "…", "1.40", "–", "–"]
    assert "-0.500 s" in lines[3]
    assert "≤ 1.5 s" in lines[3]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("only=s3", "only=s3: there is no such workload"),
        ("quick=perhaps", "quick=perhaps: it takes true or false"),
        ("quick", "quick=: there is no such key"),
    ],
)
def test_invalid_input(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        options(BenchOptions, [word], "python -m bench").names(WORKLOADS)


def test_workloads_are_chosen_by_name_and_listed_by_help() -> None:
    assert BenchOptions().names(WORKLOADS) == [*WORKLOADS]
    assert BenchOptions(only="scaling,linear").names(WORKLOADS) == ["linear", "scaling"]
    assert [line.split()[0] for line in HELP.partition("Workloads\n")[2].splitlines()] == [*WORKLOADS]


@pytest.mark.parametrize(
    "overrides",
    [
        ["experiment=linear_regression", "data.samples=100", "max_epochs=3"],
        ["data=digits", "model=mlp", "batch_size=100", "data.test_size=1000", "data.val_size=497", "max_epochs=1"],
    ],
)
def test_both_baselines_learn(tmp_path: Path, overrides: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Each lowers the loss that the net begins with."""
    from bench import baselines
    from lockstep import data
    from lockstep.optimizers import create_optimizer
    from lockstep.session.task import create_net

    config, _ = compose_job([*overrides, "accelerator=cpu"])
    plan = plan_from(config, tmp_path)
    tensors = data.load(plan.data)
    samples = tensors.as_float(tensors.train[torch.arange(len(tensors.train))], torch.float32)
    loss = torch.nn.functional.cross_entropy if plan.data.classes else torch.nn.functional.mse_loss
    for loop in baselines.LOOPS.values():
        net = create_net(plan, tensors)
        before = loss(net(samples.inputs), samples.targets).item()
        loop(plan, tensors, net, create_optimizer(plan.optimizer, net), torch.device("cpu"))
        assert loss(net(samples.inputs), samples.targets).item() < before


def test_the_source_transforms_images_as_the_engines_do(tmp_path: Path) -> None:
    from bench.baselines import Images
    from lockstep import data

    config, _ = compose_job(["data=digits"])
    tensors = data.load(plan_from(config, tmp_path).data)
    image, label = Images(tensors)[3]
    batch = tensors.as_float(tensors.train[torch.tensor([3])], torch.float32)
    assert torch.allclose(image[None], batch.inputs, atol=1e-6)
    assert label == tensors.train.targets[3]


def test_workloads_on_mnist_need_its_files(context: BenchContext) -> None:
    with pytest.raises(ConfigError, match="root=data: train-images-idx3-ubyte is not below it; write root=FOLDER"):
        context.mnist()


def test_collectives_are_counted(context: BenchContext) -> None:
    """A step of one bucket, two of two, and a sum; a barrier, and two to agree on the buckets."""
    words = ("strategy=ddp", "devices=2", "accelerator=cpu", "data=points", "batch_size=4", "max_epochs=1")
    reduced, others, steps = context.on_ranks(COUNTER, "tests.engine_counted_collectives", *words)
    assert (reduced, others, steps > 0) == (6, 3, True)
    assert not [*context.scratch.iterdir()]


def test_a_command_that_fails_is_left_out(context: BenchContext) -> None:
    assert context.time_command("-c", "raise SystemExit(2)", status=2) > 0
    with pytest.raises(ConfigError, match="exited with status 3; last line: gone"):
        context.time_command("-c", "import sys; print('gone', file=sys.stderr); sys.exit(3)")


def test_starting_is_a_difference_to_the_import_of_the_same_round(
    context: BenchContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lightning's import takes 4 s, torch's 1.5 s, a command of either 5 s, and what trains nothing 0.5 s."""

    def seconds(context: BenchContext, *words: str, status: int = 0) -> float:
        imports = {"import lightning": 4.0, "import torch": 1.5}
        return imports.get(words[-1], 5.0 if "experiment=linear_regression" in words else 0.5)

    monkeypatch.setattr(BenchContext, "time_command", seconds)
    rows = {row.variant: (row.score, row.goal, row.goal_met) for row in WORKLOADS["startup"](context)}
    assert rows["ddp 2"] == rows["single"] == (5.0, None, "")
    assert rows["ddp 2 - import lightning"] == (1.0, 0.7, "no")
    assert rows["raw ddp 2 - import torch"] == (3.5, 1.2, "no")
    assert rows["--help"] == rows["a wrong key"] == (0.5, 1.0, "yes")


@pytest.fixture
def fake_workloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Workloads that measure nothing."""

    def prints(context: BenchContext) -> list[Measurement]:
        context.report("half way")
        return MEASUREMENTS

    def refuses(context: BenchContext) -> list[Measurement]:
        raise ConfigError("refuses: it cannot run here.")

    monkeypatch.setattr("bench.workloads.WORKLOADS", {"prints": prints, "refuses": refuses})
    monkeypatch.setattr("lockstep.launch.forkserver.start_forkserver", lambda *_: None)
    monkeypatch.setattr("sys.stdin", sys.stdin)
    monkeypatch.chdir(tmp_path)


def test_from_start_to_end(fake_workloads: None, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_bench(BenchOptions()) == 0, "whatever the ratios are"
    out, err = capfd.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert "bench 1/2: prints, half way" in lines
    assert "bench 2/2: refuses, left out: refuses: it cannot run here." in lines
    assert lines[-2].startswith("2 of 3 goals met, 0 inconclusive; ")
    folder = Path(lines[-1].strip())
    assert {path.name for path in folder.iterdir()} == {"bench.csv"}
    with (folder / "bench.csv").open(newline="") as file:
        assert [row["goal_met"] for row in csv.DictReader(file)] == ["", "no", "", "yes", "yes", ""]


def test_nothing_to_measure(fake_workloads: None) -> None:
    with pytest.raises(ConfigError, match="it cannot run here"):
        run_bench(BenchOptions(only="refuses"))


@pytest.mark.slow
def test_a_real_run(command: Command) -> None:
    ended = command(*BENCH, "only=linear", "quick=true")
    assert ended.status == 0, ended.err
    lines = ended.out.splitlines()
    assert "bench 1/1: linear, round 2/2, lightning" in lines
    assert lines[0].startswith("date: ")
    folder = Path(lines[-1].strip())
    assert folder.parent == command.folder / "logs" / "bench"
    with (folder / "bench.csv").open(newline="") as file:
        rows = {row["variant"]: row for row in csv.DictReader(file)}
    assert [*rows] == ["source", "bare", "raw", "lightning"]
    assert float(rows["raw"]["ratio_min"]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("form", ["tensors=true", "tensors=false"])
def test_a_users_module_is_trained_by_all(form: str, context: BenchContext) -> None:
    """By Lightning's own Trainer and by both engines."""
    words = (*USER_CODE, f"+data.{form}", "+data.samples=64", "max_epochs=1", "threads=1", "test=false")
    assert all(context.train_seconds(name, *words) > 0 for name in ("stock", *ENGINES))
