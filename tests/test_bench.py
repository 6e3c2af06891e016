"""The bench: its arithmetic by hand, its goals, its refusals, its yardsticks, and one real run of the command."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lockstep.bench import guide
from lockstep.bench.calls_work import Calls, Counted
from lockstep.bench.growth import OVER_RANKS, OVER_SAMPLES
from lockstep.bench.machine import machine
from lockstep.bench.picture import draw
from lockstep.bench.ranks import Held, grandchildren, held_by
from lockstep.bench.row import NOT_JUDGED, Goal, Row, alternated
from lockstep.bench.setting import Setting, override
from lockstep.bench.table import text
from lockstep.bench.wanted import Wanted
from lockstep.bench.workloads import WORKLOADS, Workload
from lockstep.build import plan_from
from lockstep.cli_args import options
from lockstep.compose import compose_job
from lockstep.config_error import ConfigError
from tests.conftest import Command

BENCH = (sys.executable, "-m", "lockstep.bench")


def test_ratios_are_of_the_same_round() -> None:
    """3/2, 2/4, 6/3: 1.5, 0.5, 2; the ratio of the medians would be 1."""
    row = Row("s2", "raw", "s", (3.0, 2.0, 6.0), "source", (2.0, 4.0, 3.0))
    assert row.compared == (1.5, 0.5, 2.0)
    assert row.judged == 1.5
    assert row.holds is None
    cells = row.cells()
    assert [cells[f"compared_{name}"] for name in ("min", "median", "max")] == [0.5, 1.5, 2.0]
    assert [cells[name] for name in ("min", "median", "max", "rounds", "by")] == [2.0, 3.0, 6.0, 3, "ratio"]


def test_differences() -> None:
    row = Row("startup", "ddp 2", "s", (6.0, 5.0), "import lightning", (4.0, 4.5), by="difference", goal=Goal(4.0))
    assert row.compared == (2.0, 0.5)
    assert row.judged == 1.25
    assert row.holds


def test_a_round_that_is_missing_is_no_ratio() -> None:
    with pytest.raises(ValueError, match="argument 2 is"):
        _ = Row("s2", "raw", "s", (3.0, 2.0), "source", (2.0,)).compared


@pytest.mark.parametrize(
    ("value", "goal", "holds"),
    [
        (0.60, Goal(0.6), True),
        (0.61, Goal(0.6), False),
        (0.95, Goal(0.95, at_least=True), True),
        (0.94, Goal(0.95, at_least=True), False),
        (9.00, None, None),
    ],
)
def test_goals(value: float, goal: Goal | None, holds: bool | None) -> None:
    alone = Row("w", "way", "s", (value,) * 3, goal=goal)
    beside = Row("w", "way", "s", (7 * value,) * 3, "other", (7.0,) * 3, goal=goal)
    assert (alone.holds, beside.holds) == (holds, holds)
    assert alone.cells()["holds"] == {True: "yes", False: "no", None: ""}[holds]


@pytest.mark.parametrize(
    ("values", "seconds", "outcome"),
    [
        ((0.50, 0.52), 0.31, "yes"),
        ((0.50, 0.52), 0.29, "not judged: too short"),
        ((0.70, 0.72), 0.31, "no"),
        ((0.70, 0.72), 0.29, "not judged: too short"),
        ((0.50, 0.58), 5.0, "not judged: too short"),  # 0.54 is 0.06 from the goal, and only 1.5 standard errors
        ((0.62, 0.70), 5.0, "not judged: too short"),
        ((0.62,), 5.0, "not judged: too short"),
        ((0.50, 0.54, 0.58), 5.0, "yes"),  # the same distance is 2.6 standard errors
        ((0.526, 0.628, 0.638), 5.0, "not judged: too short"),  # its rounds are on both sides
        ((0.61, 0.628, 0.638), 5.0, "no"),
    ],
)
def test_a_goal_is_judged_where_the_run_tells(values: tuple[float, ...], seconds: float, outcome: str) -> None:
    """Of a goal of 0.6 at most."""
    row = Row("s2", "raw", "s", values, "source", (1.0,) * len(values), goal=Goal(0.6), seconds=seconds)
    assert row.cells()["holds"] == outcome
    assert row.holds is {"yes": True, "no": False}.get(outcome)
    assert text([row]).splitlines()[-1].endswith(outcome)


def test_what_is_counted_needs_one_round() -> None:
    assert Row("collectives", "sums", "calls", (2.0,), goal=Goal(1.0)).holds is False
    assert Row("memory", "raw", "MB", (700.0,), "import", (500.0,), by="difference", goal=Goal(250)).holds is True


def test_ways_take_turns() -> None:
    order: list[str] = []

    def way(name: str) -> float:
        order.append(name)
        return float(len(order))

    said: list[str] = []
    found = alternated({name: lambda name=name: way(name) for name in "AB"}, 2, said.append)  # type: ignore[misc]
    assert order == ["A", "B", "A", "B"]
    assert found == {"A": (1.0, 3.0), "B": (2.0, 4.0)}
    assert said[-1] == "round 2/2, B"


def made_up() -> list[Row]:
    return [
        Row("s2", "source", "s", (2.0, 2.0)),
        Row("s2", "raw", "s", (1.0, 1.4), "source", (2.0, 2.0), goal=Goal(0.2)),
        Row("s2", "raw", "s", (1.0, 1.4), "bare", (1.0, 1.0)),
        Row("startup", "ddp 2", "s", (5.0, 5.2), "import", (4.5, 4.7), by="difference", goal=Goal(1.5)),
        Row("startup", "--help", "s", (0.5,), goal=Goal(1.0)),
        Row(OVER_SAMPLES, "1,000 samples", "ms per 1,000", (1.0, 2.0), size=1000),
        Row(OVER_RANKS, "2 ranks", "samples/s", (90.0, 95.0), "1 rank", (100.0, 100.0), size=2),
    ]


def test_the_table() -> None:
    [head, *lines] = text(made_up()).splitlines()
    assert head.split()[:3] == ["workload", "way", "median"]
    assert lines[1].endswith(" no"), "the control: a goal that is missed is told"
    assert "0.500 … 0.700" in lines[1]
    assert "0.600" in lines[1]
    assert lines[2].split() == ["bare", "1.20", "1.00", "…", "1.40", "–", "–"], "one way, a second yardstick"
    assert "+0.500 s" in lines[3]
    assert "≤ +1.5 s" in lines[3]
    assert lines[3].endswith("yes")
    assert lines[4].endswith("not judged: too short")


@pytest.mark.parametrize("rows", [made_up(), []])
def test_the_picture(tmp_path: Path, rows: list[Row]) -> None:
    draw(rows, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_rounds() -> None:
    assert Wanted().cheap_and_dear == (3, 3)
    assert Wanted(quick=True).cheap_and_dear == (2, 1)
    assert Wanted(quick=True, rounds=5).cheap_and_dear == (5, 5)


def test_names_come_in_the_order_of_the_table() -> None:
    assert Wanted().names(WORKLOADS) == [*WORKLOADS]
    assert Wanted(only="growth,s2").names(WORKLOADS) == ["s2", "growth"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["only=s3"], "only=s3: there is no such workload"),
        (["rounds=0"], "rounds=0: it must be 1 or more"),
        (["quick=perhaps"], "quick=perhaps: it takes true or false"),
        (["round=2"], "round=2: there is no such key (did you mean rounds?)"),
        (["quick"], "quick: this is no KEY=VALUE; python -m lockstep.bench --help lists the keys."),
    ],
)
def test_refusals(words: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        options(Wanted, words, "python -m lockstep.bench").names(WORKLOADS)
    assert str(refused.value).startswith(sentence)
    assert len(str(refused.value).splitlines()) == 1


def test_the_command_refuses_in_a_sentence(command: Command) -> None:
    ended = command(*BENCH, "only=mlp,cnn_250", "root=nowhere")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("root=nowhere: train-images-idx3-ubyte is not below it, and all of mlp, cnn_250 train")
    assert ended.err.count("\n") == 1
    assert not (command.folder / "logs").exists()


def test_help_is_there_at_once() -> None:
    code = (
        "import sys; from lockstep.bench.__main__ import main; main(['--help']); "
        "print(*({'torch', 'lightning', 'matplotlib'} & sys.modules.keys()))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert out.splitlines()[-1] == ""
    assert [name for name in WORKLOADS if f"\n  {name} " not in out] == []


def test_the_head_names_the_machine() -> None:
    head = machine()
    assert {"date", "processor", "memory", "python", "torch", "lightning", "threads"} <= head.keys()
    assert all(head.values())


def test_what_a_process_holds() -> None:
    status = "Name:\tpython\nVmPeak:\t 9 kB\nVmHWM:\t  500000 kB\nVmRSS:\t 400000 kB\nRssAnon:\t  100000 kB\n"
    assert held_by(status) == pytest.approx(Held(409.6, 102.4))
    assert held_by(status, peak=True) == pytest.approx(Held(512.0, 102.4))
    assert held_by("") == Held(0, 0)


def test_ranks_are_found_behind_the_fork_server() -> None:
    nested = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        found: list[int] = []
        while not found and child.poll() is None:
            found = grandchildren(os.getpid())
        assert found
        assert child.pid not in found
        child.communicate(b"\n")


@pytest.mark.parametrize(
    "overrides",
    [
        ["experiment=linear_regression", "data.samples=100", "max_epochs=3"],
        ["data=digits", "model=cnn", "batch_size=200", "data.test_size=1000", "data.val_size=497", "max_epochs=1"],
    ],
)
def test_both_loops_learn_what_the_engines_learn(
    tmp_path: Path, overrides: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each recipe lowers the loss that the same net begins with."""
    from lockstep import data, nets
    from lockstep.bench import loops

    config, _ = compose_job([*overrides, "accelerator=cpu"])
    plan = plan_from(config, tmp_path)
    tensors = data.load(plan.data)
    everything = tensors.as_float(tensors.train[torch.arange(len(tensors.train))], torch.float32)
    for recipe in loops.RECIPES.values():
        torch.manual_seed(0)
        choice = {key: value for key, value in vars(plan.model).items() if key != "name"}
        net = nets.create(plan.model.name, tensors.shape, tensors.outputs, **choice)

        @torch.no_grad()
        def loss(net: torch.nn.Module = net) -> float:
            of = torch.nn.functional.cross_entropy if plan.data.classes else torch.nn.functional.mse_loss
            return float(of(net(everything.inputs), everything.targets))

        before = loss()
        epoch = recipe(plan, tensors, net, loops.plain_optimizer(plan, net), torch.device("cpu"))
        for _ in range(plan.max_epochs):
            epoch()
        assert loss() < before


def test_images_reach_the_source_as_its_transform_makes_them(tmp_path: Path) -> None:
    from lockstep import data
    from lockstep.bench.loops import Samples

    config, _ = compose_job(["data=digits"])
    tensors = data.load(plan_from(config, tmp_path).data)
    image, label = Samples(tensors)[3]
    batch = tensors.as_float(tensors.train[torch.tensor([3])], torch.float32)
    assert torch.allclose(image[None], batch.inputs, atol=1e-6)
    assert label == tensors.train.targets[3]


def test_work_and_traffic_of_one_affine_map() -> None:
    """4 samples, 3 → 2: forward 2·4·3·2 operations, backward the same for the weights; the input wants no gradient."""
    from lockstep.bench.counting import Traffic, work_of

    net = torch.nn.Linear(3, 2)
    work = work_of(net, torch.randn(4, 3), torch.tensor([0, 1, 0, 1]), torch.float32)
    assert work.flops == 2 * (2 * 4 * 3 * 2) / 4
    with Traffic() as traffic:
        torch.ones(8).view(2, 4)  # 32 bytes come out; the view moves nothing
    assert traffic.bytes == 32


def test_paths_of_any_name_are_overrides() -> None:
    config, _ = compose_job([override("data.root", "a b='ü"), "data=mnist"])
    assert config.data.root == "a b='ü"


def test_collectives_are_counted(tmp_path: Path) -> None:
    """A step of one bucket, two of two, and a sum of one's own; a barrier, and two to agree on the buckets."""
    setting = Setting(True, 1, 1, "data", tmp_path, lambda _: None)
    with setting.folder() as folder:
        plan = setting.plan(folder, "strategy=ddp", "devices=2", "accelerator=cpu", "data=points", "batch_size=4")
        from lockstep import launch

        calls: Calls = launch.start(Counted(plan, "tests.calling"), "lockstep.bench.calls")
    assert calls == Calls(sums=6, others=3, buckets=2)
    assert not folder.exists()


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Workloads that measure nothing, in a folder without MNIST."""

    def prints(setting: Setting) -> list[Row]:
        setting.say("half way")
        print("of a run")
        os.write(2, b"of a rank\n")
        return made_up()

    def cannot(setting: Setting) -> list[Row]:
        raise ConfigError("cannot: it has no business here; write only=prints.")

    known = {
        "prints": Workload("made up", prints),
        "cannot": Workload("refused", cannot),
        "images": Workload("on MNIST", prints, on_mnist=True),
    }
    monkeypatch.setattr(guide, "WORKLOADS", known)
    monkeypatch.setattr("lockstep.launch.start_forkserver", lambda *_: None)
    monkeypatch.chdir(tmp_path)


def test_from_start_to_end(stand_ins: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert guide.guide(Wanted()) == 0, "whatever the ratios are"
    out, err = capfd.readouterr()
    said = out.splitlines()
    assert err == ""
    assert "images: left out, train-images-idx3-ubyte is not below root=data; write root=FOLDER with MNIST" in out
    assert "bench 1/2: prints, half way" in said
    assert "bench 2/2: cannot: left out: cannot: it has no business here; write only=prints." in said
    assert said[-2].startswith("1 of 2 goals hold, 1 not judged: too short; ")
    folder = Path(said[-1].strip())
    assert {path.name for path in folder.iterdir()} == {"bench.csv", "bench.png", "machine.txt", "runs.log"}
    assert (folder / "runs.log").read_text() == "of a run\nof a rank\n"
    with (folder / "bench.csv").open(newline="") as file:
        assert [row["holds"] for row in csv.DictReader(file)] == ["", "no", "", "yes", NOT_JUDGED, "", ""]


def test_nothing_to_measure(stand_ins: None, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="it has no business here"):
        guide.guide(Wanted(only="cannot"))
    print("the terminal is back")
    assert "the terminal is back" in capfd.readouterr().out


@pytest.mark.slow
def test_a_real_run(command: Command) -> None:
    ended = command(*BENCH, "only=s2", "quick=true", "rounds=1")
    assert (ended.status, ended.err) == (0, "")
    said = ended.out.splitlines()
    assert "bench 1/1: s2, round 1/1, lightning" in said
    assert said[0].startswith("date ")
    folder = Path(said[-1].strip())
    assert folder.parent == command.folder / "logs" / "bench"
    with (folder / "bench.csv").open(newline="") as file:
        rows = {row["way"]: row for row in csv.DictReader(file)}
    assert [*rows] == ["source", "bare", "raw", "lightning"]
    ratio = float(rows["raw"]["median"]) / float(rows["source"]["median"])
    assert float(rows["raw"]["compared_median"]) == pytest.approx(ratio)
    assert rows["raw"]["holds"] == "not judged: too short", "a single round"
    assert (folder / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert "epoch 10/10" in (folder / "runs.log").read_text(), "what runs print is kept, apart"
    assert not any("epoch 10/10" in line for line in said)
