"""Code that others have written, unchanged: Lightning's demo, nets and data of packages, and what tutorials train.

Offline: shards and tables are written here, and the nets have random weights.
"""

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
from tests.test_user_module import DDP, in_both_worlds, trained

SINGLE = ("strategy=single", "strategy.in_process=false")


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"no {', '.join(missing)}; pip install -e '.[strangers]'")


BORING = ("model=boring", "data=boring_data", "batch_size=6")
SHARDS = ("model=shard_points", "data=shards", "+data.shuffle=10")
SENTENCES = ("model=sentences", "data=table", "batch_size=8")


@pytest.mark.parametrize(
    ("job", "bound"),
    [
        pytest.param(BORING, 1e-10, id="boring", marks=pytest.mark.slow),
        # 1.2e-8: it logs a mean of float32 by itself
        pytest.param(SENTENCES, 1e-7, id="bert", marks=[needs("transformers", "datasets"), pytest.mark.slow]),
    ],
)
def test_both_engines_and_both_worlds_are_one(job: tuple[str, ...], bound: float, make_user_plan: MakeUserPlan) -> None:
    single, ddp = in_both_worlds(make_user_plan, *job, "precision=64-true", single=SINGLE)
    verdict = compare(single, ddp, bound)
    assert verdict.within_tolerance, verdict.text()
    metrics = metrics_in(single)
    assert metrics["train/loss"] > 0
    assert metrics["steps"] > 1


ZOO = ("zoo.WGAN", "zoo.MaskedLM", "pictures.Segmenter")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_the_raw_engine_trains_what_people_train(make_user_plan: MakeUserPlan, tmp_path: Path) -> None:
    """Identical in all bits."""
    job = ("model=line", "data=none", "precision=64-true", "memory_format=contiguous", "engine.fast_loop=false", *DDP)
    plans = []
    for name in ZOO:
        plan = make_user_plan(*job, f"model._target_=strange_{name}", folder=name)
        for engine in (plan.engine, schemas.Raw("raw", "ddp")):
            plans.append(replace(plan, engine=engine, run_dir=str(tmp_path / name / engine.name)))
    run_plans(plans, tmp_path)
    for plan in plans[::2]:
        require_identical(Path(plan.run_dir), Path(plan.run_dir).with_name("raw"))


class Flexible(SimpleNamespace):
    """A constructor that takes any keywords, behind another signature, as transformers' configurations have."""

    def __init__(self, **options: int) -> None:
        super().__init__(**options)

    __init__.__wrapped__ = lambda self: None  # type: ignore[attr-defined]  # noqa: ARG005


def test_a_constructor_takes_more_keywords_than_it_shows() -> None:
    assert create("model.config", {"_target_": "tests.test_strangers.Flexible", "num_labels": 2}).num_labels == 2


@pytest.mark.slow
@needs("webdataset")
def test_shards_are_resumed_in_their_order_and_one_by_the_clock_is_rejected(
    make_user_plan: MakeUserPlan, tmp_path: Path
) -> None:
    """Also the order that webdataset draws for itself from Python's generator."""
    (tmp_path / "shards").mkdir()
    job = (*SHARDS, f"data.folder={tmp_path / 'shards'}", *DDP)
    same_after_kill(make_user_plan(*job, "checkpoint.every_n_steps=2"), 7)
    with pytest.raises(
        ConfigError, match=r"^data: ranks read different samples from it, .* \(for webdataset nodesplitter"
    ):
        trained(make_user_plan(*job, "+data.by_clock=true", folder="clock"))
