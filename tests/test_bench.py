"""The bench: its arithmetic by hand, its goals, invalid input, and its baselines; test_streams.py runs the command."""

import csv
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss

from bench.__main__ import HELP, BenchOptions, run_bench
from bench.workloads import (
    INCONCLUSIVE,
    MODULE,
    TRAINING,
    USER_CODE,
    WORKLOADS,
    BenchContext,
    Row,
    Training,
    Variant,
    measurement,
)
from lockstep.base.config_error import ConfigError
from lockstep.command.build import plan_from
from lockstep.command.compose import compose_job
from lockstep.command.entry_point import options
from lockstep.plan.schemas.run import ENGINES


@pytest.fixture
def context(tmp_path: Path) -> BenchContext:
    return BenchContext(quick=True, root="data", scratch=tmp_path)


def test_ratios_are_of_the_same_round() -> None:
    """3/2, 2/4, 6/3: 1.5, 0.5, 2; the ratio of the medians would be 1."""
    cells = measurement("linear", "raw", (3.0, 2.0, 6.0), "source", (2.0, 4.0, 3.0))
    assert [cells[name] for name in ("ratio_min", "ratio", "ratio_max", "met")] == [0.5, 1.5, 2.0, ""]
    assert [cells[name] for name in ("min", "median", "max")] == [2.0, 3.0, 6.0]
    with pytest.raises(ValueError, match="argument 2 is"):
        measurement("linear", "raw", (3.0, 2.0), "source", (2.0,))


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
    assert measurement("linear", "raw", values, "source", (seconds,) * len(ratios), goal=0.6)["met"] == met


def test_variants_take_turns(monkeypatch: pytest.MonkeyPatch, context: BenchContext) -> None:
    """The first run of all is not counted; each goal has a row."""
    engines: list[str] = []
    seconds = iter((9.0, 2.0, 1.0, 2.0, 1.5))

    def train_seconds(_context: BenchContext, engine: str, *_overrides: str) -> float:
        engines.append(engine)
        return next(seconds)

    monkeypatch.setattr(BenchContext, "train_seconds", train_seconds)
    training = Training({"source": Variant("source"), "raw": Variant("raw", {"source": 0.7})}, ())
    alone, beside = training.measure("linear", context)
    assert engines == ["source", "source", "raw", "source", "raw"]
    assert alone == measurement("linear", "source", (2.0, 2.0))
    assert beside == measurement("linear", "raw", (1.0, 1.5), "source", (2.0, 2.0), goal=0.7)


@pytest.mark.parametrize("name", TRAINING)
def test_goals_are_about_variants_of_the_same_work(name: str) -> None:
    training = TRAINING[name]
    assert {goal for variant in training.variants.values() for goal in variant.goals} < training.variants.keys()
    for variant in training.variants.values():
        words = [*training.overrides, *training.full, *variant.overrides, "engine=raw"]
        compose_job(words)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("only=s3", "only=s3: there is no such workload"),
        ("quick=perhaps", "quick=perhaps: it takes true or false"),
        ("quick", "quick=null: it takes true or false"),
    ],
)
def test_invalid_input(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        run_bench(options(BenchOptions, [word]))


def test_workloads_are_listed_by_help() -> None:
    assert [line.split()[0] for line in HELP.partition("Workloads\n")[2].splitlines()] == [*WORKLOADS]


@pytest.mark.parametrize("mnist_samples", [None, 200])
def test_both_baselines_learn(
    tmp_path: Path, mnist_samples: int | None, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each lowers the loss that the net begins with, on the images as the engines transform them, too."""
    from bench import baselines

    overrides = ["experiment=linear_regression", "data.samples=100"]
    if mnist_samples:
        root = request.getfixturevalue("mnist")
        overrides = ["data=mnist", f"data.root={root}", f"+data.samples={mnist_samples}", "model=mlp", "batch_size=50"]
    plan = plan_from(compose_job([*overrides, "accelerator=cpu"])[0], tmp_path)
    device, loss = torch.device("cpu"), cross_entropy if mnist_samples else mse_loss
    for loop in baselines.LOOPS.values():
        data, net, optimizer = baselines.prepared(plan, device)
        inputs, targets = data.on_after_batch_transfer([*data.datasets["train"].tensors], 0)
        before = loss(net(inputs), targets).item()
        train_epoch = loop(plan, data, net, optimizer, device)
        for _ in range(3):
            train_epoch()
        assert loss(net(inputs), targets).item() < before


def test_a_command_that_fails_is_left_out(context: BenchContext) -> None:
    assert context.time_command("-c", "raise SystemExit(2)", status=2) > 0
    with pytest.raises(ConfigError, match="exited with status 3; last line: gone"):
        context.time_command("-c", "import sys; print('gone', file=sys.stderr); sys.exit(3)")


MEASUREMENTS = [
    measurement("linear", "source", (2.0, 2.0)),
    measurement("linear", "raw", (1.0, 1.4), "source", (2.0, 2.0), goal=0.2),
    measurement("linear", "raw", (1.0, 1.4), "bare", (1.0, 1.0)),
    measurement("startup", "ddp 2 - import", (-0.5, -0.5), goal=1.5),
    measurement("startup", "--help", (0.5,), goal=1.0),
]


def test_from_start_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One workload has rows, the other cannot be measured here."""

    def refuses(context: BenchContext) -> list[Row]:
        raise ConfigError("it cannot run here.")

    monkeypatch.setattr("bench.workloads.WORKLOADS", {"prints": lambda _context: MEASUREMENTS, "refuses": refuses})
    monkeypatch.setattr("lockstep.launch.forkserver.start_forkserver", lambda *_: None)
    monkeypatch.setattr("sys.stdin", sys.stdin)
    monkeypatch.chdir(tmp_path)
    assert run_bench(BenchOptions()) == 0, "whatever the ratios are"
    out, err = capfd.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert any(line.split()[-5:] == ["bare", "1.20", "1.00", "1.40", "–"] for line in lines)
    assert "bench 2/2: refuses, left out: it cannot run here." in lines
    assert lines[-2] == "2 of 3 goals met, 0 inconclusive"
    folder = Path(lines[-1].strip())
    assert {path.name for path in folder.iterdir()} == {"bench.csv"}
    with (folder / "bench.csv").open(newline="") as file:
        assert [row["met"] for row in csv.DictReader(file)] == ["", "no", "", "yes", "yes"]
    with pytest.raises(ConfigError, match="it cannot run here"):
        run_bench(BenchOptions(only="refuses"))


@pytest.mark.slow
def test_a_users_module_is_trained_by_all(context: BenchContext) -> None:
    """By Lightning's own Trainer and by both engines."""
    words = (*USER_CODE, MODULE, "+model.tensors=false", "+model.samples=64", "max_epochs=1", "threads=1", "test=false")
    assert all(context.train_seconds(name, *words) > 0 for name in ("stock", *ENGINES))
