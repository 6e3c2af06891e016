"""The bench: its arithmetic by hand, its goals, invalid input, its baselines, and one real run of the command."""

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from lockstep.bench import runner
from lockstep.bench.__main__ import HELP
from lockstep.bench.context import PROBES, STOCK, BenchContext, BenchPayload, override
from lockstep.bench.measurement import INCONCLUSIVE, Measurement, bench_table, take_turns
from lockstep.bench.plot import draw
from lockstep.bench.runner import BenchOptions, run_bench
from lockstep.bench.workloads import MODULE, ON_MNIST, WORKLOADS, Variant, engine, measure_training
from lockstep.build import plan_from
from lockstep.command_line.compose import compose_job
from lockstep.config_error import ConfigError
from lockstep.entry_point import options
from lockstep.launch.start import start_ranks
from lockstep.schemas.engine import ENGINES
from tests.conftest import MNIST_ROOT, Command

BENCH = (sys.executable, "-m", "lockstep.bench")


def test_ratios_are_of_the_same_round() -> None:
    """3/2, 2/4, 6/3: 1.5, 0.5, 2; the ratio of the medians would be 1."""
    row = Measurement("linear", "raw", "s", (3.0, 2.0, 6.0), "source", (2.0, 4.0, 3.0))
    assert row.compared == (1.5, 0.5, 2.0)
    assert row.score == 1.5
    assert row.goal_met == ""
    cells = row.cells()
    assert [cells[f"compared_{name}"] for name in ("min", "median", "max")] == [0.5, 1.5, 2.0]
    assert [cells[name] for name in ("min", "median", "max", "rounds", "compared_by")] == [2.0, 3.0, 6.0, 3, "ratio"]


def test_differences() -> None:
    row = Measurement("startup", "ddp 2", "s", (6.0, 5.0), "import", (4.0, 4.5), by="difference", goal=4.0)
    assert row.compared == (2.0, 0.5)
    assert row.score == 1.25
    assert row.goal_met == "yes"


def test_a_round_that_is_missing_is_no_ratio() -> None:
    with pytest.raises(ValueError, match="argument 2 is"):
        _ = Measurement("linear", "raw", "s", (3.0, 2.0), "source", (2.0,)).compared


@pytest.mark.parametrize(("value", "goal", "met"), [(0.60, 0.6, "yes"), (0.61, 0.6, "no"), (9.0, None, "")])
def test_goals(value: float, goal: float | None, met: str) -> None:
    alone = Measurement("w", "variant", "s", (value,) * 3, goal=goal)
    beside = Measurement("w", "variant", "s", (7 * value,) * 3, "other", (7.0,) * 3, goal=goal)
    assert (alone.goal_met, beside.goal_met) == (met, met)
    assert alone.cells()["goal_met"] == met


@pytest.mark.parametrize(
    ("ratios", "seconds", "met"),
    [
        ((0.50, 0.52), 0.63, "yes"),
        ((0.50, 0.52), 0.59, INCONCLUSIVE),  # the shortest timing is 0.295 s
        ((0.70, 0.72), 0.63, "no"),
        ((0.70, 0.72), 0.29, INCONCLUSIVE),
        ((0.50, 0.58), 5.0, INCONCLUSIVE),  # 0.54 is 0.06 from the goal, and only 1.5 standard errors
        ((0.62, 0.70), 5.0, INCONCLUSIVE),
        ((0.62,), 5.0, INCONCLUSIVE),
        ((0.50, 0.54, 0.58), 5.0, "yes"),  # the same distance is 2.6 standard errors
        ((0.526, 0.628, 0.638), 5.0, INCONCLUSIVE),  # its rounds are on both sides
        ((0.61, 0.628, 0.638), 5.0, "no"),
    ],
)
def test_a_goal_is_judged_where_the_run_tells(ratios: tuple[float, ...], seconds: float, met: str) -> None:
    """Of a goal of 0.6 at most."""
    values = tuple(ratio * seconds for ratio in ratios)
    row = Measurement("linear", "raw", "s", values, "source", (seconds,) * len(ratios), goal=0.6)
    assert row.goal_met == met
    assert row.cells()["goal_met"] == met
    assert bench_table([row]).splitlines()[-1].endswith(f" {met}")


def test_a_count_needs_one_round() -> None:
    assert Measurement("collectives", "all-reduces", "calls", (2.0,), goal=1.0).goal_met == "no"
    assert Measurement("sweep", "further job", "s", (2.0,), goal=1.0).goal_met == INCONCLUSIVE


def test_variants_take_turns() -> None:
    order: list[str] = []

    def variant(name: str) -> float:
        order.append(name)
        return float(len(order))

    reported: list[str] = []
    variants: Any = {name: lambda name=name: variant(name) for name in "AB"}
    found = take_turns(variants, 2, reported.append)
    assert order == ["A", "B", "A", "B"]
    assert found == {"A": (1.0, 3.0), "B": (2.0, 4.0)}
    assert reported[-1] == "round 2/2, B"


def test_a_row_for_each_goal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first run of all is not counted."""
    seconds = iter((9.0, 2.0, 1.0, 2.0, 1.5))
    monkeypatch.setattr("lockstep.bench.workloads.training_seconds", lambda *_: next(seconds))
    context = BenchContext(True, 2, 1, "data", tmp_path, lambda _: None)
    variants = {"source": Variant("source"), "raw": engine("raw", source=0.7)}
    alone, beside = measure_training("linear", variants, (), 2, context)
    assert alone == Measurement("linear", "source", "s", (2.0, 2.0))
    assert beside == Measurement("linear", "raw", "s", (1.0, 1.5), "source", (2.0, 2.0), goal=0.7)


def made_up() -> list[Measurement]:
    return [
        Measurement("linear", "source", "s", (2.0, 2.0)),
        Measurement("linear", "raw", "s", (1.0, 1.4), "source", (2.0, 2.0), goal=0.2),
        Measurement("linear", "raw", "s", (1.0, 1.4), "bare", (1.0, 1.0)),
        Measurement("startup", "ddp 2", "s", (5.0, 5.2), "import", (4.5, 4.7), by="difference", goal=1.5),
        Measurement("startup", "--help", "s", (0.5,), goal=1.0),
        Measurement("scaling", "ranks: 2", "samples/s", (90.0, 95.0), "ranks: 1", (100.0, 100.0)),
    ]


def test_the_table() -> None:
    [head, *lines] = bench_table(made_up()).splitlines()
    assert head.split()[:3] == ["workload", "variant", "median"]
    assert lines[1].endswith(" no"), "the control: a goal that is missed is told"
    assert "0.500 … 0.700" in lines[1]
    assert "0.600" in lines[1]
    assert lines[2].split() == ["bare", "1.20", "1.00", "…", "1.40", "–", "–"], "one variant, a second baseline"
    assert "+0.500 s" in lines[3]
    assert "≤ +1.5 s" in lines[3]
    assert lines[3].endswith("yes")
    assert lines[4].endswith(INCONCLUSIVE)
    assert "≤ 1 s" in lines[4]


def test_the_plot(tmp_path: Path, saved_figures: list[Figure]) -> None:
    """Ratios at their scores, each in the colour that the legend gives to its result; goals."""
    draw(made_up(), tmp_path / "bench.png")
    [left] = saved_figures[0].axes
    drawn = [(line, np.asarray(line.get_xydata())) for line in left.get_lines()]
    points = {line.get_color(): xy for line, xy in drawn if line.get_marker() == "o" and len(xy)}
    colors = {line.get_label(): line.get_color() for line, _ in drawn}
    np.testing.assert_allclose(points[colors["goal missed"]], [[0.6, 0]])
    np.testing.assert_allclose(points[colors["no goal"]], [[1.2, 1]])
    [goal] = [xy for line, xy in drawn if line.get_marker() == "|" and line.get_color() == "black" and len(xy)]
    np.testing.assert_allclose(goal, [[0.2, 0]])
    assert [tick.get_text() for tick in left.get_yticklabels()] == ["linear: raw / source", "linear: raw / bare"]
    assert left.get_xlabel() == "time / the baseline's time"
    assert left.get_xlim()[0] == 0
    draw([], tmp_path / "empty.png")


def test_options() -> None:
    assert BenchOptions().fast_and_slow_rounds == (3, 3)
    assert BenchOptions(quick=True).fast_and_slow_rounds == (2, 1)
    assert BenchOptions(quick=True, rounds=5).fast_and_slow_rounds == (5, 5)
    assert BenchOptions().names(WORKLOADS) == [*WORKLOADS]
    assert BenchOptions(only="scaling,linear").names(WORKLOADS) == ["linear", "scaling"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["only=s3"], "only=s3: there is no such workload"),
        (["rounds=0"], "rounds=0: it must be 1 or more"),
        (["quick=perhaps"], "quick=perhaps: it takes true or false"),
        (["round=2"], "round=2: there is no such key (did you mean rounds?)"),
        (["quick"], "quick: "),
    ],
)
def test_invalid_input(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        options(BenchOptions, words, "python -m lockstep.bench").names(WORKLOADS)
    assert str(refused.value).startswith(message)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.slow
def test_the_command_exits_with_one_line(command: Command) -> None:
    ended = command(*BENCH, "only=mlp,cnn", "root=nowhere")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("root=nowhere: train-images-idx3-ubyte is not below it, and all of mlp, cnn train")
    assert ended.err.count("\n") == 1
    assert not (command.folder / "logs").exists()


def test_help_is_there_at_once() -> None:
    code = (
        "import sys; from lockstep.bench.__main__ import main; main(['--help']); "
        "print(*({'torch', 'lightning', 'matplotlib'} & sys.modules.keys()))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert out.splitlines()[-1] == ""
    workloads = HELP.partition("Workloads\n")[2]
    assert [line.split()[0] for line in workloads.splitlines()] == [*WORKLOADS]
    assert out.startswith(HELP)
    assert {*WORKLOADS} > ON_MNIST


@pytest.mark.parametrize(
    "overrides",
    [
        ["experiment=linear_regression", "data.samples=100", "max_epochs=3"],
        ["data=digits", "model=mlp", "batch_size=100", "data.test_size=1000", "data.val_size=497", "max_epochs=1"],
    ],
)
def test_both_baselines_learn(tmp_path: Path, overrides: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Each lowers the loss that the net begins with."""
    from lockstep import data
    from lockstep.bench import baselines
    from lockstep.seeding import plain_net

    config, _ = compose_job([*overrides, "accelerator=cpu"])
    plan = plan_from(config, tmp_path)
    tensors = data.load(plan.data)
    everything = tensors.as_float(tensors.train[torch.arange(len(tensors.train))], torch.float32)
    for loop in baselines.LOOPS.values():
        net = plain_net(plan, tensors)

        @torch.no_grad()
        def loss(net: torch.nn.Module = net) -> float:
            of = torch.nn.functional.cross_entropy if plan.data.classes else torch.nn.functional.mse_loss
            return float(of(net(everything.inputs), everything.targets))

        before = loss()
        epoch = loop(plan, tensors, net, baselines.plain_optimizer(plan, net), torch.device("cpu"))
        for _ in range(plan.max_epochs):
            epoch()
        assert loss() < before


def test_images_reach_the_source_as_its_transform_makes_them(tmp_path: Path) -> None:
    from lockstep import data
    from lockstep.bench.baselines import Samples

    config, _ = compose_job(["data=digits"])
    tensors = data.load(plan_from(config, tmp_path).data)
    image, label = Samples(tensors)[3]
    batch = tensors.as_float(tensors.train[torch.tensor([3])], torch.float32)
    assert torch.allclose(image[None], batch.inputs, atol=1e-6)
    assert label == tensors.train.targets[3]


def test_paths_of_any_name_are_overrides() -> None:
    config, _ = compose_job([override("data.root", "a b='ü"), "data=mnist"])
    assert config.data.root == "a b='ü"


def test_collectives_are_counted(tmp_path: Path) -> None:
    """A step of one bucket, two of two, and a sum of one's own; a barrier, and two to agree on the buckets."""
    context = BenchContext(True, 1, 1, "data", tmp_path, lambda _: None)
    with context.folder() as folder:
        plan = context.plan(folder, "strategy=ddp", "devices=2", "accelerator=cpu", "data=points", "batch_size=4")

        payload = BenchPayload(plan, "tests.engine_counted_collectives", "collectives")
        assert start_ranks(payload, PROBES) == (6, 3, plan.steps.total_steps)
    assert not folder.exists()


def test_a_command_that_fails_is_left_out(tmp_path: Path) -> None:
    context = BenchContext(True, 1, 1, "data", tmp_path, lambda _: None)
    assert context.time_command("-c", "raise SystemExit(2)", status=2) > 0
    with pytest.raises(ConfigError, match="it ended with status 3 and said last: gone; write only="):
        context.time_command("-c", "import sys; print('gone', file=sys.stderr); sys.exit(3)")


def test_starting_is_a_difference_to_the_import_of_the_same_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lightning's import takes 4 s, torch's 1.5 s, a command of either 5 s, and what trains nothing 0.5 s."""

    def seconds(context: BenchContext, *words: str, status: int = 0) -> float:
        imports = {"import lightning": 4.0, "import torch": 1.5}
        return imports.get(words[-1], 5.0 if "experiment=linear_regression" in words else 0.5)

    monkeypatch.setattr(BenchContext, "time_command", seconds)
    rows = WORKLOADS["startup"](BenchContext(True, 2, 2, "data", tmp_path, lambda _: None))
    scores = {row.variant: (row.score, row.goal, row.goal_met) for row in rows}
    assert scores["ddp 2"] == (1.0, 0.7, "no")
    assert scores["raw ddp 2"] == (3.5, 1.2, "no")
    assert scores["single"] == scores["ddp_spawn 2"] == (1.0, None, "")
    assert scores["--help"] == scores["a wrong key"] == (0.5, 1.0, "yes")


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Workloads that measure nothing, in a folder without MNIST."""

    def prints(context: BenchContext) -> list[Measurement]:
        context.report("half way")
        print("of a run")
        os.write(2, b"of a rank\n")
        return made_up()

    def cannot(context: BenchContext) -> list[Measurement]:
        raise ConfigError("cannot: it has no business here; write only=prints.")

    monkeypatch.setattr(runner, "WORKLOADS", {"prints": prints, "cannot": cannot, "images": prints})
    monkeypatch.setattr(runner, "ON_MNIST", {"images"})
    monkeypatch.setattr("lockstep.launch.forkserver.start_forkserver", lambda *_: None)
    monkeypatch.chdir(tmp_path)


def test_from_start_to_end(stand_ins: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_bench(BenchOptions()) == 0, "whatever the ratios are"
    out, err = capfd.readouterr()
    said = out.splitlines()
    assert err == ""
    assert "images: left out, train-images-idx3-ubyte is not below root=data; write root=FOLDER with MNIST" in out
    assert "bench 1/2: prints, half way" in said
    assert "bench 2/2: cannot, left out: cannot: it has no business here; write only=prints." in said
    assert said[-2].startswith("1 of 3 goals met, 1 inconclusive; ")
    folder = Path(said[-1].strip())
    assert {path.name for path in folder.iterdir()} == {"bench.csv", "bench.png", "machine.txt", "runs.log"}
    assert (folder / "runs.log").read_text() == "of a run\nof a rank\n"
    with (folder / "bench.csv").open(newline="") as file:
        assert [row["goal_met"] for row in csv.DictReader(file)] == ["", "no", "", "yes", INCONCLUSIVE, ""]


def test_nothing_to_measure(stand_ins: None, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="it has no business here"):
        run_bench(BenchOptions(only="cannot"))
    print("the terminal is back")
    assert "the terminal is back" in capfd.readouterr().out


@pytest.mark.slow
def test_a_real_run(command: Command) -> None:
    ended = command(*BENCH, "only=linear", "quick=true", "rounds=1")
    assert (ended.status, ended.err) == (0, "")
    said = ended.out.splitlines()
    assert "bench 1/1: linear, round 1/1, lightning" in said
    assert said[0].startswith("date: ")
    folder = Path(said[-1].strip())
    assert folder.parent == command.folder / "logs" / "bench"
    with (folder / "bench.csv").open(newline="") as file:
        rows = {row["variant"]: row for row in csv.DictReader(file)}
    assert [*rows] == ["source", "bare", "raw", "lightning"]
    ratio = float(rows["raw"]["median"]) / float(rows["source"]["median"])
    assert float(rows["raw"]["compared_median"]) == pytest.approx(ratio)
    assert rows["raw"]["goal_met"] == INCONCLUSIVE, "a single round"
    assert (folder / "bench.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("form", ["tensors=true", "tensors=false"])
def test_a_users_module_is_trained_by_all(form: str, tmp_path: Path) -> None:
    """By Lightning's own Trainer and by both engines."""
    context = BenchContext(True, 1, 1, "data", tmp_path, lambda _: None)
    job = (*MODULE, f"+data.{form}", "+data.samples=64", "max_epochs=1", "threads=1", "test=false")
    assert context.time_baseline(STOCK, *job) > 0
    assert all(float(context.train(*job, f"engine={name}")["train_seconds"]) > 0 for name in ENGINES)


@pytest.mark.slow
@pytest.mark.skipif(not (MNIST_ROOT / "MNIST").is_dir(), reason=f"no MNIST below {MNIST_ROOT}")
def test_what_monitoring_takes_is_measured(command: Command) -> None:
    """Within each run: a share of it, above nothing and below all."""
    ended = command(*BENCH, "only=monitoring", "quick=true", "rounds=1", f"root={MNIST_ROOT}")
    assert (ended.status, ended.err) == (0, "")
    with (Path(ended.out.splitlines()[-1].strip()) / "bench.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [row["variant"] for row in rows] == ["lightning", "raw"]
    assert all(1 < float(row["compared_median"]) < 2 for row in rows)
