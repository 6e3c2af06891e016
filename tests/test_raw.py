"""The raw engine alone: what it imports, what it leaves, and what it refuses before any rank starts."""

import importlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import lockstep
from lockstep.base.config_error import ConfigError
from lockstep.plan import schemas
from lockstep.raw.data import Loader
from lockstep.raw.trainer import configured
from tests.comparing import lines, metrics_in, require_identical
from tests.conftest import IN_PROCESS, ROOT, MakePlan, MakeUserPlan, require_refused
from tests.rank_helpers import run_plans, trained
from tests.test_layers import imports

pytestmark = IN_PROCESS


class Stream(IterableDataset[int]):
    """Samples in the order of an iterable."""

    def __iter__(self) -> Iterator[int]:
        yield from range(4)


RAW = ROOT / "src" / "lockstep" / "raw"
SMALL = (
    *("data=digits", "data.test_size=1655", "data.val_size=12", "model.net.hidden=[16]", "batch_size=12", "threads=1"),
    *("accelerator=cpu", "logger=none", "max_epochs=2", "engine=raw"),
)

DIRECT = {
    *("base.config_error", "base.errors", "base.files", "base.messages", "base.private_api.torch"),
    *("base.private_api.torchmetrics", "base.safe_loading", "base.structures", "base.timeline", "launch.topology"),
    *("plan.targets.kinds", "plan.targets.locate", "plan.world"),
}
"""What raw/ imports: to raise, to write files, to send messages, and to find the user's code."""


def test_it_imports_nothing_that_decides_a_number() -> None:
    found = {name for path in RAW.glob("*.py") for name in imports(path.read_text()) if name.startswith("lockstep.")}
    modules = {name.removeprefix("lockstep.") for name in found if not name.startswith("lockstep.raw")}
    files = {name for name in modules if (ROOT / "src/lockstep" / f"{name.replace('.', '/')}.py").is_file()}
    assert files == DIRECT


def test_what_it_leaves(make_plan: MakePlan) -> None:
    """A record, results, and last.ckpt with plain values, which `lockstep.load` reads."""
    plan = make_plan(*SMALL)
    run_plans([plan], Path(plan.run_dir))
    folder = Path(plan.run_dir)
    assert [line["step"] for line in lines(folder, "step")] == [*range(1, 23)]
    assert len(lines(folder, "validation")) == 2
    saved = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["lockstep"]["position"] == {"epochs": 2, "batch": 0, "steps": 22}
    assert saved["optimizer_states"][0]["state"].keys()
    module = lockstep.load(folder)
    assert all(torch.equal(value, saved["state_dict"][name]) for name, value in module.state_dict().items())
    metrics = metrics_in(folder)
    assert {"engine": "raw", "epochs": 2, "steps": 22, "monitor": "val/acc"}.items() <= metrics.items()


REFUSED = {
    "train=false": "train=false: engine=raw only repeats a training, from its first weights to its last",
    "test=best": "test=best: engine=raw keeps the final weights alone",
    "memory_format=channels_last": "memory_format=channels_last: engine=raw computes contiguous nets alone",
    "callbacks=ema": "callbacks=EMAWeightAveraging: engine=raw runs no callbacks",
    "optimizer._target_=torch.optim.LBFGS ~optimizer.weight_decay": "engine=raw goes backward once a step",
}


@pytest.mark.parametrize("word", REFUSED)
def test_refused(word: str, make_plan: MakePlan) -> None:
    require_refused(REFUSED[word], make_plan, "engine=raw", "logger=none", *word.split())


def test_a_strategy_is_refused_by_name(make_plan: MakePlan) -> None:
    words, fsdp = ("logger=none", "devices=2"), "strategy=fsdp"
    sentence = "strategy=fsdp: engine=raw runs one process, or DistributedDataParallel; write strategy=ddp, or"
    require_refused(sentence, make_plan, "engine=raw", fsdp, *words)
    assert make_plan("engine=both", fsdp, *words).engine.name == "both"


def test_hooks_come_in_the_order_of_lightning(make_user_plan: MakeUserPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    strange_hooks = importlib.import_module("strange_hooks")
    words = ("model=boring", "model._target_=strange_hooks.Module", "data=boring_data", "engine.fast_loop=false")
    plan = make_user_plan(*words, "trainer.limit_train_batches=2", "batch_size=8")
    calls = []
    for engine in (plan.engine, schemas.Raw("raw", "ddp")):
        folder = Path(plan.run_dir) / engine.name
        monkeypatch.setattr(strange_hooks, "CALLS", [])
        run_plans([replace(plan, engine=engine, run_dir=str(folder))], folder)
        calls.append([call for call in strange_hooks.CALLS if call.startswith("Module.") and "predict" not in call])
    assert len(calls[0]) > 40
    assert calls[1] == calls[0]


def test_what_both_engines_could_take_for_granted(make_user_plan: MakeUserPlan) -> None:
    """Shares of 5.76 and 1.5 batches, seven samples for two ranks, max_steps above the steps of the run, …"""
    job = ("model=line", "model._target_=strange_zoo.Everything", "data=none", "strategy=ddp", "devices=2")
    shares = ("batch_size=7", "trainer.limit_train_batches=0.96", "trainer.limit_val_batches=0.3", "max_epochs=3")
    words = (*job, *shares, "accumulate_grad_batches=2", "trainer.val_check_interval=0.5", "trainer.max_steps=100")
    plan = make_user_plan(*words, "precision=64-true", "memory_format=contiguous")
    engines = {"own": schemas.Lightning("lightning", False), "fast": plan.engine, "raw": schemas.Raw("raw", "ddp")}
    folders = [Path(plan.run_dir) / name for name in engines]
    pairs = zip(engines.values(), folders, strict=True)
    run_plans([replace(plan, engine=engine, run_dir=str(folder)) for engine, folder in pairs], Path(plan.run_dir))
    for folder in folders[1:]:
        require_identical(folders[0], folder)
    metrics = metrics_in(folders[0])
    assert (metrics["steps"], metrics["best_epoch"], metrics["best"]) == (9, 2, 0.0)


def test_a_hook_that_is_not_called_is_refused(make_plan: MakePlan) -> None:
    plan = make_plan(*SMALL[:-1])
    plan = replace(plan, model=replace(plan.model, hooks=("on_fit_end", "configure_callbacks", "on_predict_start")))
    with pytest.raises(ConfigError, match="engine=raw does not call configure_callbacks, which it overrides"):
        replace(plan, engine=schemas.Raw("raw", "ddp"))


def test_an_optimizer_of_the_module_that_goes_backward_several_times_is_refused(make_user_plan: MakeUserPlan) -> None:
    sentence = "model=Late: engine=raw runs no LBFGS; write engine=lightning."
    plan = make_user_plan("model=late", "data=none", "engine=raw")
    require_refused(sentence, lambda: trained("raw", plan))


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(Stream(), 2, num_workers=1),
        DataLoader(TensorDataset(torch.ones(1)), batch_size=None),
        DataLoader(TensorDataset(torch.ones(1)), batch_sampler=[[0]]),
        [1],
    ],
)
def test_loaders_that_are_refused(loader: Any) -> None:
    options = {"seed": 1, "trainer": {"limit_train_batches": 1.0, "overfit_batches": 0}}
    trainer: Any = SimpleNamespace(config=OmegaConf.create(options), global_rank=0, world_size=1)
    with pytest.raises(ConfigError, match=r"^data: engine=raw reads a DataLoader with a batch_size, and an Iterable.*"):
        Loader(loader, trainer, "train", 1)


def test_batches_of_several_sizes_are_refused_before_a_run(make_user_plan: MakeUserPlan) -> None:
    sentence = "data=UnevenData: engine=raw reads DataLoaders with a batch_size"
    require_refused(sentence, make_user_plan, "engine=both", "model=uneven", "data=uneven_data")


def test_a_plateau_of_steps_is_refused() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], 1.0)
    schedule = {"scheduler": ReduceLROnPlateau(optimizer), "monitor": "loss", "interval": "step"}
    with pytest.raises(ConfigError, match=r"^scheduler: engine=raw steps ReduceLROnPlateau by epochs; write engine="):
        configured({"optimizer": optimizer, "lr_scheduler": schedule})
