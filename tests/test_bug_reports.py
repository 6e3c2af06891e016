"""Small modules of bug reports: each trains as a plain loop does, or is refused by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lockstep.base.config_error import ConfigError
from lockstep.plan.plan import Plan
from lockstep.runs.compare import compare
from tests.comparing import lines, metrics_in, require_identical
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


def most(x: Tensor) -> Tensor:
    """Return which samples the collate function `keep_some` keeps."""
    return x[:, 0] > -0.5


def by_hand(name: str, size: int = 8, factor: float = 1.0, ranks: int = 1, keep: Any = None, val: Any = None) -> float:
    """Return the validation loss after two epochs of a plain loop; ranks take turns, and begin with rank 0's buffers.

    keep, val: which samples of training and validation are kept.
    """
    import strange_points  # type: ignore[import-not-found]

    torch.manual_seed(42)
    module: Any = getattr(strange_points, name)().double()
    module.log = lambda *_: None
    optimizer, buffers = torch.optim.SGD(module.parameters(), lr=0.1), dict(module.named_buffers())
    x, y = (tensor.double() for tensor in strange_points.points(48, 1).tensors)
    for batch in [*torch.split(torch.arange(48), size)] * 2:
        batch = batch if keep is None else batch[keep(x[batch])]
        optimizer.zero_grad()
        before = {name: buffer.clone() for name, buffer in buffers.items()}
        for rank in reversed(range(ranks)):  # rank 0 last, whose buffers stay
            for name, buffer in buffers.items():
                buffer.copy_(before[name])
            ids = batch[rank::ranks]
            returned = module.training_step((factor * x[ids], y[ids]), 0)
            loss = returned["loss"] if isinstance(returned, dict) else returned
            (loss * len(ids) / len(batch)).backward()
        optimizer.step()
    x, y = (tensor.double() for tensor in strange_points.points(20, 2).tensors)
    ids = torch.arange(20) if val is None else val(x)
    with torch.no_grad():
        return float(module.loss((factor * x[ids], y[ids])))


ALONE: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "plain": (("Base",), {}),
    "an __iter__": (("Doubled",), {"factor": 2.0}),
    "a stream": (("Stream", "batch_size=16"), {"size": 16}),
    "a stream with a length": (("LongStream", "batch_size=16"), {"size": 16}),
    "dropping": (("DroppingWeighted", "accumulate_grad_batches=2"), {"size": 16, "keep": most, "val": most}),
}
"""The words of a run, and the arguments of the plain loop."""

BY_RAW = {
    "keep": r"^data=TensorDataset: engine=raw trains with all samples, ",
    "factor": r"^data=module: engine=raw reads DataLoaders with a batch_size; ",
}
"""What raw says of cases with these arguments."""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", ALONE)
def test_a_module_is_trained_as_it_is(case: str, engine: str, make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    words, arguments = ALONE[case]
    plan = make(*words)
    if engine == "raw" and (refusals := [BY_RAW[name] for name in arguments if name in BY_RAW]):
        with pytest.raises(ConfigError, match=refusals[0]):
            trained(engine, plan)
        return
    value = trained(engine, plan).get("val_loss")
    if case == "a stream with a length":  # of 80 samples, and 48 come
        assert (value, "length" in "".join(capfd.readouterr())) == (None, True)
    else:
        assert value == pytest.approx(by_hand(words[0], **arguments), rel=1e-12)


def test_ranks(make: Make, tmp_path: Path) -> None:
    """Two ranks, and two virtual ones, compute as the plain loop does; every step begins with rank 0's buffers."""
    drops = ("DroppingWeighted", {"keep": most, "val": most})
    cases: dict[str, Any] = {"codes": ("Coded", {"ranks": 2}), "drops": drops}
    plans = {name: make(module, *HALVES) for name, (module, _) in cases.items()}
    plans["accumulated"] = make("Coded", *HALVES, "accumulate_grad_batches=2")
    plans["apart"] = make("Coded", *HALVES, "strategy.broadcast_buffers=false")
    by_lightning = [with_engine(plan, "lightning", tmp_path / name) for name, plan in plans.items()]
    by_raw = [with_engine(plans[name], "raw", tmp_path / f"{name} raw") for name in ("codes", "accumulated")]
    run_plans([*by_lightning, *by_raw], tmp_path)
    for name, (module, arguments) in cases.items():
        value = by_hand(module, **arguments)
        assert metrics_in(tmp_path / name)["val_loss"] == pytest.approx(value, rel=1e-12)
    for name in ("codes", "accumulated"):
        require_identical(tmp_path / name, tmp_path / f"{name} raw")
    for name, words in {"codes": (), "accumulated": ("accumulate_grad_batches=2",)}.items():
        virtual = trained("lightning", make("Coded", "strategy=virtual", "devices=2", *words), f"{name} virtual")
        assert virtual["val_loss"] == pytest.approx(metrics_in(tmp_path / name)["val_loss"], rel=1e-12)
    text = " ".join(compare(tmp_path / "apart", tmp_path / "apart").text().split())
    assert "They differ first in ranks of one run, epoch 1, step 6, buffers of ranks 0 and 1 in " in text


REFUSED = {
    (
        "OwnBatches",
        "batch_size=16",
    ): r"^batch_size=16: train_dataloader makes batches of its own; write data that t",
    ("Dropping", "accumulate_grad_batches=2"): r"^data=module: its collate function drops samples, .*\"weight\": n}",
    ("Dropping", "strategy=virtual", "devices=2"): r"^data=module: its collate function drops samples, by whose number",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_would_be_wrong_is_refused(words: tuple[str, ...], make: Make) -> None:
    with pytest.raises(ConfigError, match=REFUSED[words]):
        trained("lightning", make(*words))


@pytest.mark.parametrize("engine", ["lightning", "lightning's own loop", "raw"])
@pytest.mark.parametrize("method", ["loss", "on_after_batch_transfer", "on_train_epoch_end", "validation_step"])
def test_stop_iteration_is_an_error(method: str, engine: str, make: Make) -> None:
    """Lightning's loops take it for the end of the data, and leave the rest out."""
    loop = ("engine.fast_loop=false",) if engine == "lightning's own loop" else ()
    with pytest.raises((RuntimeError, StopIteration)):
        trained(engine.partition("'")[0], make("Stopping", f"+model.method={method}", *loop))


def test_an_epoch_that_a_hook_ends(make: Make, tmp_path: Path) -> None:
    """Both engines tell the number of batches, and step the schedule of an epoch that `-1` ends, as Lightning does."""
    plan = make("Counting")
    for engine in ENGINES:
        (tmp_path / engine).mkdir()
        (tmp_path / engine / "metrics.json").write_text(json.dumps(trained(engine, plan)))
    require_identical(*(tmp_path / engine for engine in ENGINES))
    rates = [line["lr"] for line in lines(tmp_path / "raw", "step")]
    assert rates == [0.1] * 4 + [0.05] * 4
