"""Code that others have written, unchanged: Lightning's demos, and nets and data of packages that people use.

Offline: shards, texts and tables are written here, and the nets have random weights.
"""

import random
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from lockstep.base.config_error import ConfigError
from lockstep.plan import schemas
from lockstep.plan.targets.locate import create
from lockstep.runs.compare import compare
from tests.comparing import metrics_in, require_identical
from tests.conftest import MakeUserPlan
from tests.rank_helpers import run_plans
from tests.resuming import same_after_kill
from tests.test_user_module import DDP, VIRTUAL, by_both, in_both_worlds, trained

SINGLE = ("strategy=single", "strategy.in_process=false")
FLOAT64 = 1e-10


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"no {', '.join(missing)}; pip install -e '.[strangers]'")


BORING = ("model=boring", "data=boring_data", "batch_size=6")
BY_HAND = ("model=boring_manual", "data=boring_data", "batch_size=6")
SHARDS = ("model=shard_points", "data=shards", "data.folder={folder}")
SHUFFLED = (*SHARDS, "+data.shuffle=10")
SENTENCES = ("model=sentences", "data=table", "batch_size=8")
WRITER = ("model=writer", "data=table", "batch_size=8")
RESNET = ("model=resnet18", "data=pictures", "batch_size=8", "sync_batchnorm=true", "max_epochs=1")
DEMO = (
    "model=demo_transformer",
    "data=wikitext",
    "data.dataset.data_dir._args_=[{folder}]",
    "batch_size=20",
    "max_epochs=1",
)
HUGGING = needs("transformers", "datasets")

WORLDS = [
    pytest.param(BORING, FLOAT64, id="boring"),
    pytest.param(BY_HAND, FLOAT64, id="boring-manual", marks=pytest.mark.slow),
    pytest.param(SHUFFLED, FLOAT64, id="webdataset", marks=[needs("webdataset"), pytest.mark.slow]),
    # 1.2e-8: it logs a mean of float32 by itself
    pytest.param(SENTENCES, 1e-7, id="bert", marks=[HUGGING, pytest.mark.slow]),
    # transformers computes the loss of a language model in float32, whatever the net is in
    pytest.param(WRITER, 1e-6, id="gpt2", marks=[HUGGING, pytest.mark.slow]),
    pytest.param(RESNET, FLOAT64, id="resnet18", marks=pytest.mark.slow),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where local data lies: a text of a few words; shards come as they are prepared."""
    words = random.Random(1).choices([f"word{number}" for number in range(25)], k=600)
    folder = tmp_path / "local"
    folder.mkdir()
    lines = (" ".join(words[start : start + 20]) for start in range(0, len(words), 20))
    (folder / "wikitext-2.txt").write_text("\n".join(lines))
    return folder


def in_folder(job: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    return tuple(word.format(folder=folder) if "{folder}" in word else word for word in job)


@pytest.mark.parametrize(("job", "bound"), WORLDS)
def test_both_engines_and_both_worlds_are_one(
    job: tuple[str, ...], bound: float, make_user_plan: MakeUserPlan, folder: Path
) -> None:
    job = (*in_folder(job, folder), "precision=64-true")
    single, ddp = in_both_worlds(make_user_plan, *job, single=SINGLE)
    verdict = compare(single, ddp, bound)
    assert verdict.within_tolerance, verdict.text()
    metrics = metrics_in(single)
    assert metrics["train/loss"] > 0
    assert metrics["steps"] > 1


ZOO = (
    *("zoo.WGAN", "zoo.SimCLR", "zoo.VAE", "zoo.MaskedLM"),
    *("pictures.Segmenter", "pictures.ImageNet", "pictures.DQN"),
)


@pytest.mark.slow
@pytest.mark.parametrize("world", [SINGLE, DDP], ids=["single", "ddp"])
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_the_raw_engine_trains_what_people_train(
    world: tuple[str, ...], make_user_plan: MakeUserPlan, tmp_path: Path
) -> None:
    """Identical in all bits; a DQN's target net gets no gradients, which ranks refuse."""
    job = ("model=line", "data=none", "precision=64-true", "memory_format=contiguous", "engine.fast_loop=false", *world)
    plans = []
    for name in ZOO[: -1 if world is DDP else None]:
        plan = make_user_plan(*job, f"model._target_=strange_{name}", folder=name)
        for engine in (plan.engine, schemas.Raw("raw", "ddp")):
            plans.append(replace(plan, engine=engine, run_dir=str(tmp_path / name / engine.name)))
    run_plans(plans, tmp_path)
    for plan in plans[::2]:
        require_identical(Path(plan.run_dir), Path(plan.run_dir).with_name("raw"))
    if world is DDP:
        job = (*job, "model._target_=strange_pictures.DQN")
        with pytest.raises(ConfigError, match=r"^strategy.find_unused_parameters=false: a parameter received no grad"):
            trained(make_user_plan(*job, folder="unused"))


class Flexible(SimpleNamespace):
    """A constructor that takes any keywords, behind another signature, as transformers' configurations have."""

    def __init__(self, **options: int) -> None:
        super().__init__(**options)

    __init__.__wrapped__ = lambda self: None  # type: ignore[attr-defined]  # noqa: ARG005


@pytest.mark.parametrize(
    "target", ["tests.test_strangers.Flexible", pytest.param("transformers.BertConfig", marks=needs("transformers"))]
)
def test_a_constructor_takes_more_keywords_than_it_shows(target: str) -> None:
    assert create("model.config", {"_target_": target, "num_labels": 2}).num_labels == 2


@pytest.mark.slow
def test_a_net_with_dropout_is_that_of_virtual_ranks(make_user_plan: MakeUserPlan, folder: Path) -> None:
    """Lightning's demo of a transformer, on its own class of a text: its ranks draw masks of their own."""
    job = (*in_folder(DEMO, folder), "precision=64-true")
    ddp = by_both(make_user_plan(*job, *DDP, folder="both"))
    require_identical(*ddp)
    virtual = trained(make_user_plan(*job, *VIRTUAL, folder="virtual"))
    verdict = compare(ddp[1], virtual)
    assert verdict.within_tolerance, verdict.text()
    assert 0 < verdict.max_diff < FLOAT64


@pytest.mark.parametrize(
    ("job", "world"),
    [
        pytest.param(SHUFFLED, DDP, marks=needs("webdataset")),
        pytest.param(SHUFFLED, SINGLE, marks=[needs("webdataset"), pytest.mark.slow]),
        pytest.param((*SENTENCES, "+model.dropout=0.1"), DDP, marks=[HUGGING, pytest.mark.slow]),
    ],
)
def test_killed_within_an_epoch_it_ends_the_same(
    job: tuple[str, ...], world: tuple[str, ...], make_user_plan: MakeUserPlan, folder: Path
) -> None:
    """Also the order that webdataset draws for itself from Python's generator."""
    plan = make_user_plan(*in_folder(job, folder), *world, "checkpoint.every_n_steps=2")
    same_after_kill(plan, 7)


@needs("webdataset")
def test_shards_in_an_order_by_the_clock_are_rejected(make_user_plan: MakeUserPlan, folder: Path) -> None:
    """One process trains on them; of two each would see others."""
    plan = make_user_plan(*in_folder(SHUFFLED, folder), "+data.by_clock=true", *DDP)
    with pytest.raises(
        ConfigError, match=r"^data: ranks read different samples from it, .* \(for webdataset nodesplitter"
    ):
        trained(plan)
