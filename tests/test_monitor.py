"""What those who watch a run see: names, hyper-parameters, texts and groups, by TensorBoard's own readers."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from lockstep import loggers, run, schemas
from lockstep.command_line.overrides import swept_keys
from lockstep.launch.start import start_ranks
from lockstep.launch.topology import RankContext
from lockstep.loggers.run_label import run_label
from lockstep.loggers.tensorboard import folder_of
from lockstep.monitor import hparams_of
from lockstep.monitor.epoch import EpochMonitor
from lockstep.monitor.pictures import confusion_picture
from lockstep.plan import Plan
from lockstep.schemas.engine import ENGINES
from lockstep.session.epoch_timing import mark_phases
from lockstep.sums.phases import Phases
from lockstep.sums.running import PredictionSamples
from tests.conftest import ROOT, Command, MakeOwn, MakePlan, events_of
from tests.rank_helpers import ENGINES as RUN
from tests.test_own_module import MODULES, SINGLE

SMALL = ("model.hidden=[8]", "batch_size=200", "max_epochs=2", "threads=1", "log_every_n_steps=3")


def labelled(plan: Plan, *words: str, swept: tuple[str, ...] = ()) -> str:
    """Without its time."""
    return run_label(replace(plan, command=schemas.Command(words, swept))).rpartition(" · ")[0]


def test_a_label_says_what_a_run_is_and_what_varies(make_plan: MakePlan) -> None:
    plan, two = make_plan(), make_plan("strategy=ddp", "devices=2", "engine=raw")
    assert labelled(plan) == "single mlp"
    assert labelled(plan, "engine=lightning", "logger=csv", "seed=3") == "lightning single mlp seed=3"
    assert labelled(two, "optimizer.lr=0.003", "model.hidden=[8]", "+data.x='a/b c'") == (
        "raw ddp×2 mlp lr=0.003 hidden=[8] x=b c"
    )
    assert labelled(two, "optimizer.lr=1", "max_epochs=2", "threads=2", swept=("threads",)) == "raw ddp×2 mlp threads=2"
    assert labelled(plan, "data.size=1", "model.size=2") == "single mlp data.size=1 model.size=2"
    long = labelled(plan, *(f"model.key{number}=value" for number in range(30)))
    assert (len(long), long[-1]) == (90, "…")


def test_the_time_is_that_of_the_folder_and_a_resumed_run_keeps_its_own(make_plan: MakePlan, tmp_path: Path) -> None:
    plan = make_plan()
    dated = replace(plan, run_dir=str(tmp_path / "sweeps" / "2026-11-22_14-03-12-798684" / "3"))
    assert run_label(dated) == "single mlp · 14-03-12"
    first = folder_of(dated)
    first.mkdir(parents=True)
    (first / "events.out.tfevents.1").touch()
    changed = schemas.Command(("max_epochs=9",))
    assert folder_of(replace(dated, command=changed, resume=True)) == first
    assert folder_of(replace(dated, command=changed)) != first


def test_what_a_sweep_varies_was_typed_with_several_values_or_not_at_all() -> None:
    typed = ["-m", "--config-dir", "x", "optimizer.lr=1,2", "model.hidden=[8, 16]", "seed=range(3)", "max_epochs=1"]
    job = ["optimizer.lr=1", "model.hidden=[8,16]", "seed=0", "max_epochs=1", "+data.size=7"]
    assert swept_keys(typed, job) == ("optimizer.lr", "seed", "data.size")


def test_every_option_is_a_hyper_parameter_and_nothing_that_follows_from_them(make_plan: MakePlan) -> None:
    found = hparams_of(make_plan("gradient_clip_val=1.0"))
    assert found["model.hidden"] == "[256, 128]"
    assert {"optimizer.lr", "max_epochs", "gradient_clip_val", "scheduler", "optimizer.weight_decay"} <= found.keys()
    assert not {"world_size", "run_dir", "name", "ckpt_path", "logger", "data.root"} & found.keys()
    assert hparams_of(make_plan())["gradient_clip_val"] == "null", "told apart from a number, and not left out"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_by_tensorboards_reader(engine: str, make_plan: MakePlan) -> None:
    """Groups by meaning, hyper-parameters beside them, no card for a final value; texts, and a layout."""
    plan = make_plan(*SMALL, "strategy=ddp", "devices=2", f"engine={engine}")
    plan = replace(plan, command=schemas.Command(("strategy=ddp", "optimizer.lr=0.01")))
    (Path(plan.run_dir) / "config.yaml").write_text("model:\n  name: mlp\n")
    metrics = start_ranks(plan, ENGINES[engine])
    events = events_of(Path(plan.run_dir))
    curves = {tag: [(point.step, point.value) for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    steps = {f"work/step_seconds/{phase}" for phase in ("data", "forward", "backward", "optimizer", "rest")}
    assert {name for name in curves if name.startswith("work/")} == {
        *steps,
        *("work/samples_per_second", "work/memory_GiB", "work/epoch"),
    }
    assert {name.partition("/")[0] for name in curves} == {"train", "val", "test", "work"}
    assert [step for step, _ in curves["train/acc"]] == [step for step, _ in curves["val/acc"]] == [7, 14]
    assert curves["work/epoch"] == [(7, 0), (14, 1)], "the test at the last step has it too"
    assert curves["train/acc"][-1][1] == pytest.approx(metrics["train/acc"])
    spent = sum(value for name in steps for _, value in curves[name]) * metrics["steps"] / 2
    assert 0.3 < spent / metrics["train_seconds"] < 1.5
    begun = parsed(events, metadata.SESSION_START_INFO_TAG)
    assert metadata.parse_session_start_info_plugin_data(begun).hparams["optimizer.lr"].number_value == 0.001
    trial = metadata.parse_session_start_info_plugin_data(begun).group_name
    assert "ddp×2 mlp lr=0.01 · " in trial.partition("  ")[0], "what a table cuts is the folder, not the name"
    assert parsed(events, metadata.SESSION_END_INFO_TAG)
    assert metadata.EXPERIMENT_TAG not in events.summary_metadata, "the list of one run would stand for all"
    texts = {tag: events.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in tags(events, "text")}
    assert "python train.py strategy=ddp optimizer.lr=0.01" in texts["run/command"]
    assert "2, joined by gloo" in texts["run/environment"]
    assert "name: mlp" in texts["run/configuration"]
    assert tags(events, "custom_scalars") == ["custom_scalars__config__"]


def tags(events: EventAccumulator, plugin: str) -> list[str]:
    return [tag for tag, own in events.summary_metadata.items() if own.plugin_data.plugin_name == plugin]


def parsed(events: EventAccumulator, tag: str) -> bytes:
    content: bytes = events.summary_metadata[tag].plugin_data.content
    return content


def test_both_engines_have_their_difference_as_a_curve(tmp_path: Path) -> None:
    """By the command's own way, so that all of it is named by what was typed; another seed shows that it measures."""
    run(["engine=both", *SMALL, "max_epochs=1", f"hydra.run.dir={tmp_path}"])
    names = {path.parent.name.rpartition(" · ")[0] for path in tmp_path.rglob("events*")}
    chosen = "single mlp hidden=[8] batch_size=200 max_epochs=1"
    assert names == {f"lightning {chosen}", f"raw {chosen}", f"difference {chosen}"}
    events = events_of(tmp_path)
    assert events.Tags()["scalars"] == [f"difference/{name}" for name in ("largest", "loss", "gradient norm")]
    assert [(point.step, point.value) for point in events.Scalars("difference/largest")] == [
        (step, 0.0) for step in range(8)
    ]
    assert b"identical; expected: identical" in events.Tensors("difference/verdict")[0].tensor_proto.string_val[0]


def test_a_difference_is_seen_where_there_is_one(tmp_path: Path, make_plan: MakePlan) -> None:
    from lockstep.compare import RecordedRun
    from lockstep.monitor.difference import differences

    folders = [tmp_path / "a", tmp_path / "b"]
    for seed, folder in enumerate(folders):
        folder.mkdir()
        plan = make_plan(*SMALL, "max_epochs=1", "engine=raw", "logger=none", f"seed={seed}", "test=false")
        start_ranks(replace(plan, run_dir=str(folder)), ENGINES["raw"])
    found = differences(*map(RecordedRun, folders))
    assert found[0] == {"largest": 0.0, "loss": 0.0, "gradient norm": 0.0}
    for values in [own for step, own in found.items() if step]:
        assert values["largest"] == max(values.values()) > 0.001
        assert min(values.values()) > 1e-4, values


def test_a_sweep_names_its_jobs_by_what_it_varies(command: Command) -> None:
    job = (*SMALL, "max_epochs=1", "engine=raw", "hydra.sweep.dir=sweep")
    ended = command.train("-m", "optimizer.lr=0.001,0.003", *job)
    assert ended.status == 0, ended.err
    names = sorted(path.parent.name.rpartition(" · ")[0] for path in command.folder.rglob("events*"))
    assert names == ["raw single mlp lr=0.001", "raw single mlp lr=0.003"]


@pytest.mark.parametrize("engine", ENGINES)
def test_pictures_of_each_validation(engine: str, make_plan: MakePlan) -> None:
    """The confusion counts are those of all ranks; histograms, curves and the graph where they are asked for."""
    asked = ("logger.tensorboard.histograms=2", "logger.tensorboard.pr_curves=true", "logger.tensorboard.graph=true")
    plan = make_plan(*SMALL, "strategy=ddp", "devices=2", f"engine={engine}", "test=false", *asked)
    start_ranks(plan, ENGINES[engine])
    events = events_of(Path(plan.run_dir), images=0, tensors=0)
    steps = {tag: [one.step for one in events.Images(tag)] for tag in events.Tags()["images"]}
    assert steps == {"val/confusion": [7, 14], "val/worst": [7, 14], "weights/first layer": [7, 14]}
    assert {events.Images("val/confusion")[0].width, events.Images("val/confusion")[0].height} == {28 * 10 + 44}
    assert events.Tags()["graph"]
    assert [one.step for one in events.Histograms("weights/layers.0.weight")] == [14]
    assert "weights/layers.0.weight/gradient" in events.Tags()["histograms"]
    assert len(tags(events, "pr_curves")) == 10


def kept_of(plan: Plan, rank: int) -> PredictionSamples | None:
    with loggers.create(plan, rank, 0, {}) as opened:
        kept = EpochMonitor(plan, opened, torch.nn.Linear(1, 1), (1,)).begin_validation()
        opened.close({})
    return kept


def test_pictures_cost_nothing_where_nobody_wants_them(make_plan: MakePlan) -> None:
    assert kept_of(make_plan("logger.tensorboard.images=false"), 0) is None
    assert kept_of(make_plan("logger=csv"), 0) is None
    assert kept_of(make_plan(), 1) is None, "above rank 0"
    assert kept_of(make_plan("data=random_regression", "model=linear"), 0) is None, "no classes"
    assert kept_of(make_plan(), 0) is not None


def test_pictures_take_no_more_than_their_share(make_plan: MakePlan) -> None:
    """Of a hundred validations in a row the first and the last have them."""
    plan = make_plan("max_epochs=100")
    with loggers.create(plan, 0, 0, {}) as opened:
        monitor = EpochMonitor(plan, opened, torch.nn.Linear(1, 1), (1,))
        for epoch in range(1, 101):
            monitor.end_epoch(True, torch.eye(2, dtype=torch.int64), epoch, epoch)
        opened.close({})
    steps = [one.step for one in events_of(Path(plan.run_dir), images=0).Images("val/confusion")]
    assert (steps[0], steps[-1]) == (1, 100)
    assert len(steps) < 20


def test_the_surest_wrong_answers_are_kept() -> None:
    shown = PredictionSamples()
    logits = torch.tensor([[9.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    shown.add(torch.arange(3.0)[:, None], logits, torch.tensor([0, 0, 1]))
    shown.add(torch.tensor([[7.0]]), torch.tensor([[0.0, 6.0]]), torch.tensor([0]))
    assert shown.worst is not None
    inputs, targets, predicted, confidence = shown.worst
    assert inputs.flatten().tolist()[:3] == [7.0, 2.0, 1.0]
    assert (targets.tolist()[:3], predicted.tolist()[:3]) == ([0, 1, 0], [1, 0, 1])
    assert confidence.tolist() == sorted(confidence.tolist(), reverse=True)
    assert confidence[3] == -1, "a right answer comes behind them, and is not shown"


def test_a_confusion_picture_shades_a_row_by_its_share() -> None:
    picture = confusion_picture(torch.tensor([[5, 0], [1, 3]]))
    corners = [picture[44 + row * 28 + 1, 44 + column * 28 + 1].tolist() for row in (0, 1) for column in (0, 1)]
    assert corners[0] == [8, 64, 129]
    assert corners[1] == [255, 255, 255]
    assert corners[3][0] < corners[2][0] < 255


@pytest.mark.parametrize("engine", ENGINES)
def test_a_module_draws_by_its_own_experiment(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`self.logger.experiment` of a LightningModule, in both engines, in the run's own folder."""
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "own_code"))
    own = f"hydra.searchpath=[file://{ROOT / 'tests' / 'own_code' / 'conf'}]"
    words = ("model=drawing", "data=model", "max_epochs=1", "threads=1", "test=false", f"hydra.run.dir={tmp_path}")
    run([own, f"engine={engine}", *words])
    events = events_of(tmp_path, images=0)
    assert [one.step for one in events.Images("mine")] == [1]
    assert {"work/samples_per_second", "work/memory_GiB"} <= {*events.Tags()["scalars"]}


@pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader` but have no `validation_step`")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("job", "weight"),
    [
        (MODULES["classifier"], "net.0.weight"),
        (MODULES["gan"], "discriminator.0.weight"),
        (("model.hidden=[8]", "trainer.limit_train_batches=3", "callbacks=timer"), "layers.0.weight"),
        pytest.param(
            *(("model=resnet18", "data=pictures", "trainer.limit_train_batches=3"), "conv1.weight"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["automatic", "manual", "a plain net with callbacks", "images"],
)
def test_what_a_module_has_of_it(
    engine: str,
    job: tuple[str, ...],
    weight: str,
    make_own: MakePlan,
) -> None:
    """Seconds by phase of automatic and manual optimization, histograms, first filters; the graph of its forward."""
    asked = ("logger=tensorboard", "logger.tensorboard.histograms=2", "logger.tensorboard.graph=true", "test=false")
    plan = make_own(*job, *SINGLE, *asked, f"engine={engine}", "max_epochs=2")
    metrics = RUN[engine](plan, RankContext(0, 1, 0, 1))
    events = events_of(Path(plan.run_dir), images=0)
    names = events.Tags()
    phases = {name.rpartition("/")[2]: name for name in names["scalars"] if "/step_seconds/" in name}
    assert {*phases} == {"data", "forward", "backward", "optimizer", "rest"}
    steps, seconds = int(metrics["steps"]), float(metrics["train_seconds"])
    spent = sum(point.value for name in phases.values() for point in events.Scalars(name)) * steps / 2
    assert 0 < spent < 1.2 * seconds
    assert {f"weights/{weight}", f"weights/{weight}/gradient"} <= {*names["histograms"]}
    assert [one.step for one in events.Histograms(f"weights/{weight}")] == [steps]
    forward = "model=resnet18" in job or "callbacks=timer" in job
    assert ("weights/first layer" in names["images"], bool(names["graph"])) == (forward, forward)


@pytest.mark.parametrize("engine", ENGINES)
def test_histograms_of_shards_are_of_the_whole(engine: str, make_own: MakeOwn) -> None:
    """Under fsdp each holds as many numbers as under ddp, and their sum is theirs; of a module and of a plain net."""
    asked = ("devices=2", "logger=tensorboard", "logger.tensorboard.histograms=1", "test=false", "max_epochs=2")
    for number, job in enumerate((("model=regressor", "data=stream"), ("data=points", "model.hidden=[4]"))):
        found = []
        for strategy in ("ddp", "fsdp"):
            own = (*job, *asked, "precision=64-true", f"engine={engine}", f"strategy={strategy}")
            plan = make_own(*own, folder=f"{strategy}{number}")
            start_ranks(plan, ENGINES[engine])
            events = events_of(Path(plan.run_dir))
            every = {name: events.Histograms(name) for name in events.Tags()["histograms"]}
            found.append({name: [(one.step, one.histogram_value) for one in own] for name, own in every.items()})
        ddp, fsdp = found
        assert ddp.keys() == fsdp.keys()
        assert any(name.endswith("/gradient") for name in ddp)
        for name in ddp:
            assert [step for step, _ in ddp[name]] == [step for step, _ in fsdp[name]]
            for (_, one), (_, other) in zip(ddp[name], fsdp[name], strict=True):
                assert (one.num, one.sum) == pytest.approx((other.num, other.sum), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("automatic", [True, False])
def test_forward_is_told_from_backward(automatic: bool) -> None:
    """A step that takes a second before its backward pass and two within; the clock is the phases' own."""

    class Module:
        automatic_optimization = automatic

        def training_step(self) -> None:
            clock.at += 1
            if not automatic:
                self.backward()

        def backward(self) -> None:
            clock.at += 2

    class Clock(Phases):
        at = 0.0

        def mark(self, phase: str) -> None:
            self.seconds[phase] += self.at - self.since
            self.since = self.at

    module, clock = Module(), Clock()
    clock.since = 0.0
    mark_phases(module, [], clock)
    module.training_step()
    if automatic:
        module.backward()
    assert (clock.seconds["forward"], clock.seconds["backward"]) == (1.0, 2.0)
