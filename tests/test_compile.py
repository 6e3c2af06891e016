"""`compile=true`: runs compile the same graphs, which add in another order; checkpoints know nothing of it."""

from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn
from torch._dynamo.utils import counters

from lockstep.engine import run
from lockstep.engine.compiling import _called
from lockstep.plan.plan import Plan
from lockstep.runs.compare import compare
from lockstep.runs.compare.tolerance import FLOAT64
from lockstep.runs.run_files import Metrics
from tests.conftest import Command, MakePlan, require_refused
from tests.rank_helpers import ALONE, with_engine

SMALL = ("logger=none", "threads=1", "precision=64-true", "max_epochs=2")

REFUSED = {
    "strategy=dp devices=2": "compile=true: strategy=dp computes with new copies of the net in each batch; write",
    "strategy=model_parallel model=split_cnn devices=2": "compile=true: strategy=model_parallel calls the stages",
    "show_shapes=true": "show_shapes=true: it runs beside the net",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_compiled(words: str, make_plan: MakePlan) -> None:
    require_refused(REFUSED[words], make_plan, "compile=true", *words.split())


def test_children_with_parameters_are_compiled() -> None:
    module = nn.Module()
    module.net, module.loss, module.heads = nn.Linear(2, 2), nn.MSELoss(), nn.ModuleList([nn.Linear(2, 1), nn.ReLU()])
    assert [*_called(module)] == [module.net, module.heads[0]]


def trained(plan: Plan, folder: str) -> Metrics:
    return run(with_engine(plan, "lightning", Path(plan.run_dir) / folder), ALONE)


@pytest.mark.slow
@pytest.mark.usefixtures("process_as_it_was")
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_resumed_runs_compile_the_same(make_plan: MakePlan) -> None:
    """The last batch of an epoch is smaller than the others."""
    plan = make_plan(
        *SMALL, "data=points", "data.samples=200", "batch_size=48", "model.net.hidden=[16]", "compile=true"
    )
    folder = Path(plan.run_dir)
    counters["stats"].clear()
    compiled = trained(plan, "compiled")
    assert counters["stats"]["unique_graphs"] >= 3, "one for each shape of a batch, and for evaluations"
    trained(replace(plan, compile=False), "plain")
    comparison = compare(folder / "plain", folder / "compiled")
    assert (comparison.tolerance, comparison.within_tolerance) == (FLOAT64, True)
    assert comparison.quantities["configuration"].first is None, "a bound accounts for the difference"
    first = folder / "compiled" / "checkpoints" / "previous.ckpt"
    resumed = replace(plan, ckpt_path=str(first))
    assert trained(resumed, "again")["digest"] == compiled["digest"]
    plainly = trained(replace(resumed, compile=False), "plainly")
    assert plainly["steps"] == compiled["steps"], "checkpoints are interchangeable"


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_compiled_on_two_ranks(command: Command) -> None:
    points = ("data=points", "data.samples=200", "model.net.hidden=[16]")
    line = (*SMALL, *points, "compile=true", "strategy=ddp", "devices=2")
    ended = command.train(*line, "hydra.run.dir=compiled", timeout=900)
    assert (ended.status, "torch/_" in ended.err, "compile" in ended.err) == (0, False, False), ended.err
    assert ended.out.count("compiling: the first batch of each shape takes some seconds\n") == 1
    plain = command.train(*line, "compile=false", "hydra.run.dir=plain")
    assert plain.status == 0, plain.err
    comparison = compare(command.folder / "compiled", command.folder / "plain")
    assert (comparison.tolerance, comparison.within_tolerance) == (FLOAT64, True)
