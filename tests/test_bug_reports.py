"""Small modules of bug reports: each trains as a plain loop does, or is refused by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lockstep.base.config_error import ConfigError
from lockstep.plan.plan import Plan
from tests.comparing import metrics_in, require_identical
from tests.conftest import IN_PROCESS, QUIET, USER_CODE
from tests.inspections import plan_here
from tests.rank_helpers import run_plans, trained, with_engine

pytestmark = IN_PROCESS
Make = Callable[..., Plan]
ENGINES = ("lightning", "raw")
HALVES = ("strategy=ddp", "devices=2")


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Make plans of the modules in strange_points.py."""
    monkeypatch.syspath_prepend(str(USER_CODE))

    def make(name: str, *words: str) -> Plan:
        job = ("model=small", f"model._target_=strange_points.{name}", "data=none", "precision=64-true")
        return plan_here([f"hydra.searchpath=[file://{USER_CODE}/conf]", *QUIET, *job, *words], tmp_path)

    return make


def ids_of(x: Tensor, drops: bool) -> Tensor:
    """Return the ids of the samples that the collate function `keep_some` keeps, or all."""
    return torch.arange(len(x))[x[:, 0] > -0.5] if drops else torch.arange(len(x))


def by_hand(name: str, size: int = 8, ranks: int = 1, drops: bool = False) -> float:
    """Return the validation loss after two epochs of a plain loop; ranks take turns, each with rank 0's buffers."""
    import strange_points  # type: ignore[import-not-found]

    torch.manual_seed(42)
    module: Any = getattr(strange_points, name)().double()
    module.log = lambda *_: None
    optimizer, buffers = torch.optim.SGD(module.parameters(), lr=0.1), dict(module.named_buffers())
    x, y = (tensor.double() for tensor in strange_points.points(48, 1).tensors)
    for batch in [*torch.split(torch.arange(48), size)] * 2:
        batch = batch[ids_of(x[batch], drops)]
        optimizer.zero_grad()
        before = {name: buffer.clone() for name, buffer in buffers.items()}
        for rank in reversed(range(ranks)):  # rank 0 last, whose buffers stay
            for name, buffer in buffers.items():
                buffer.copy_(before[name])
            ids = batch[rank::ranks]
            returned = module.training_step((x[ids], y[ids]), 0)
            loss = returned["loss"] if isinstance(returned, dict) else returned
            (loss * len(ids) / len(batch)).backward()
        optimizer.step()
    x, y = (tensor.double() for tensor in strange_points.points(20, 2).tensors)
    ids = ids_of(x, drops)
    with torch.no_grad():
        return float(module.loss((x[ids], y[ids])))


DROPS = ("DroppingWeighted", "accumulate_grad_batches=2")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_module_is_trained_as_it_is(engine: str, make: Make) -> None:
    assert trained(engine, make("FirstSamples"))["val_loss"] == pytest.approx(by_hand("Base"), rel=1e-12)


def test_samples_that_a_collate_function_drops_do_not_count(make: Make) -> None:
    value = by_hand("DroppingWeighted", size=16, drops=True)
    assert trained("lightning", make(*DROPS))["val_loss"] == pytest.approx(value, rel=1e-12)
    with pytest.raises(ConfigError, match=r"^data=TensorDataset: engine=raw trains with all samples, "):
        trained("raw", make(*DROPS))


def test_ranks(make: Make, tmp_path: Path) -> None:
    """Two ranks, and two virtual ones, compute as the plain loop does; every step begins with rank 0's buffers."""
    plans = {"codes": make("Coded", *HALVES), "drops": make("DroppingWeighted", *HALVES)}
    by_lightning = [with_engine(plan, "lightning", tmp_path / name) for name, plan in plans.items()]
    run_plans([*by_lightning, with_engine(plans["codes"], "raw", tmp_path / "raw")], tmp_path)
    expected = {"codes": by_hand("Coded", ranks=2), "drops": by_hand("DroppingWeighted", drops=True)}
    for name, value in expected.items():
        assert metrics_in(tmp_path / name)["val_loss"] == pytest.approx(value, rel=1e-12)
    require_identical(tmp_path / "codes", tmp_path / "raw")
    virtual = trained("lightning", make("Coded", "strategy=virtual", "devices=2"), "virtual")
    assert virtual["val_loss"] == pytest.approx(expected["codes"], rel=1e-12)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("OwnBatches", "batch_size=16"),
            r"^batch_size=16: train_dataloader makes batches of its own; write data that",
        ),
        (("Dropping", "accumulate_grad_batches=2"), r"^data=module: its collate function drops samples, .*\"weight\":"),
        (
            ("Dropping", "strategy=virtual", "devices=2"),
            r"^data=module: its collate function drops samples, by",
        ),
    ],
)
def test_what_would_be_wrong_is_refused(words: tuple[str, ...], sentence: str, make: Make) -> None:
    with pytest.raises(ConfigError, match=sentence):
        trained("lightning", make(*words))


@pytest.mark.parametrize(
    ("method", "engine"),
    [
        *(("loss", "lightning"), ("on_train_epoch_end", "raw")),
        ("on_after_batch_transfer", "lightning's own loop"),
    ],
)
def test_stop_iteration_is_an_error(method: str, engine: str, make: Make) -> None:
    """Lightning's loops take it for the end of the data, and leave the rest out."""
    loop = ("engine.fast_loop=false",) if engine == "lightning's own loop" else ()
    with pytest.raises((RuntimeError, StopIteration)):
        trained(engine.partition("'")[0], make("Stopping", f"+model.method={method}", *loop))
