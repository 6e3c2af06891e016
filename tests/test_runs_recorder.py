"""Records of other programs: a loop and a stock Trainer agree to the last bit; planted differences are found."""

import os
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from lockstep import ConfigError, Recorder, compare
from lockstep.runs.recorder import summary_of
from lockstep.runs.report import render
from lockstep.runs.report.pages import pair_page
from tests.comparing import lines
from tests.conftest import IN_PROCESS, ROOT, MakePlan
from tests.rank_helpers import trained, wrong_on

pytestmark = IN_PROCESS
Batch = tuple[Tensor, Tensor]
QUIET = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)


def points() -> TensorDataset:
    inputs = torch.randn(32, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return TensorDataset(inputs, inputs.sin().sum(dim=1, keepdim=True))


def loader(batch_size: int = 8) -> "DataLoader[Any]":
    return DataLoader(points(), batch_size)


def new_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)).double()


def adam(net: nn.Module) -> tuple[torch.optim.Optimizer, CosineAnnealingLR]:
    optimizer = torch.optim.AdamW(net.parameters(), 0.01)
    return optimizer, CosineAnnealingLR(optimizer, 8)


def train_by_hand(folder: Path, change: Callable[[int, nn.Module], None] = lambda _step, _net: None) -> None:
    """Train for two epochs of four steps, each of two batches; `change`: of the net before a step, from 1."""
    net = new_net()
    optimizer, schedule = adam(net)
    with Recorder(folder, net, optimizer) as recorder:
        for _epoch in range(2):
            for inputs, targets in loader():
                change(recorder.last_step + 1, net)
                optimizer.zero_grad()
                for half in range(2):
                    loss = mse_loss(net(inputs[half::2]), targets[half::2])
                    (loss / 2).backward()  # type: ignore[no-untyped-call]
                    (recorder.add if half == 0 else recorder.step)(loss, inputs[half::2])
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                optimizer.step()
                schedule.step()
            with torch.no_grad():
                recorder.end_epoch(val_loss=mse_loss(net(points().tensors[0]), points().tensors[1]))


class Port(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = new_net()

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return mse_loss(self.model(batch[0]), batch[1])

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.log("val_loss", mse_loss(self.model(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        optimizer, schedule = adam(self)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def train_port(folder: Path) -> None:
    halves = [[tensor[half::2] for tensor in batch] for batch in loader() for half in range(2)]
    keys = {"accumulate_grad_batches": 2, "gradient_clip_val": 0.5, "precision": "64-true", **QUIET}
    trainer = Trainer(accelerator="cpu", max_epochs=2, callbacks=[Recorder.callback(folder)], **keys)  # type: ignore[arg-type]
    batches: DataLoader[Any] = DataLoader(halves, batch_size=None)  # type: ignore[arg-type]
    trainer.fit(Port(), batches, loader(32))


@pytest.fixture
def by_hand(tmp_path: Path) -> Path:
    train_by_hand(tmp_path / "by_hand")
    return tmp_path / "by_hand"


def test_a_loop_and_its_port_agree(by_hand: Path, tmp_path: Path) -> None:
    train_port(tmp_path)
    comparison = compare(by_hand, tmp_path)
    assert comparison.verdict == "identical", comparison.text()
    compared = {name: quantity.compared for name, quantity in comparison.quantities.items()}
    steps = dict.fromkeys(("samples", "contents of batches", "learning rate", "loss", "gradient norm"), 8)
    assert compared.items() >= {**steps, "validation": 2, "parameters and buffers": 4}.items()


def test_changed_weights_are_found_at_their_step(by_hand: Path, tmp_path: Path) -> None:
    def change(step: int, net: nn.Module) -> None:
        if step == 6:
            next(net.parameters()).data[0, 0] += 1e-12

    train_by_hand(tmp_path, change)
    comparison = compare(by_hand, tmp_path)
    assert comparison.first_divergence
    assert (comparison.first_divergence.name, comparison.first_divergence.when[0]) == ("loss", 6)


def test_other_options_of_the_optimizer_are_named(by_hand: Path, tmp_path: Path) -> None:
    net = new_net()
    optimizer = torch.optim.AdamW(net.parameters(), 0.01, weight_decay=0.0)
    with Recorder(tmp_path, net, optimizer) as recorder:
        loss = mse_loss(net(points().tensors[0]), points().tensors[1])
        loss.backward()  # type: ignore[no-untyped-call]
        recorder.step(loss, 32)
    first = compare(by_hand, tmp_path).content()["first_divergence"]
    assert first == "configuration, record.jsonl, run.optimizers.0.weight_decay: 0.01 against 0.0 (by 1.0e-02)"


def test_the_hash_of_a_batch_is_of_its_samples_in_any_order() -> None:
    samples = torch.randn(6, 3, 2)
    count, contents = summary_of({"x": samples, "y": torch.ones(6)})
    assert (count, contents) == (6, summary_of([samples.flip(0).double()])[1])
    assert contents == summary_of(samples[:2])[1] + summary_of(samples[2:])[1]
    swapped = samples.clone()
    swapped[[0, 1], 0] = samples[[1, 0], 0]  # the same values, of other samples
    assert contents != summary_of(swapped)[1]
    assert summary_of(torch.tensor([[1, 2, 1]]))[1] != summary_of(torch.tensor([[2, 0, 2]]))[1]


def test_misuse_is_reported(by_hand: Path, tmp_path: Path) -> None:
    net = new_net()
    recorder = Recorder(tmp_path, net, torch.optim.SGD(net.parameters(), 0.1))
    with pytest.raises(ConfigError, match=r"has a gradient; write loss.backward\(\); recorder.step\(loss, inputs\)"):
        recorder.step(0.5, 8)
    (tmp_path / "config.yaml").touch()
    with pytest.raises(ConfigError, match="it is a run of Lockstep"):
        Recorder(tmp_path, net)


def train_on_ranks(rank: int, world: int) -> list[str]:
    """Record a loop on this rank's share as `ddp`, and one that calls the net past DDP as `past`."""
    for name in ("ddp", "past"):
        net = new_net()
        model = DistributedDataParallel(net)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        data = points()
        batches = DataLoader(data, 4, sampler=DistributedSampler(data, world, rank, shuffle=False))
        with Recorder(Path(os.environ["RECORDS"]) / name, model, optimizer) as recorder:
            for inputs, targets in batches:
                loss = mse_loss((model if name == "ddp" else net)(inputs), targets)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                recorder.step(loss, inputs)
                optimizer.step()
    return []


def test_a_run_of_lockstep_can_be_compared(make_plan: MakePlan, tmp_path: Path) -> None:
    """Its Trainer takes the callback, which records the run once more."""
    target = "lockstep.runs.loggers.recorder_callback.RecorderCallback"
    callback = f"+callbacks.recorder={{_target_: {target}, folder: {tmp_path / 'other'}}}"
    words = ("data=points", "model.net.hidden=[4]", "logger=none", "accelerator=cpu", "test=false", "max_epochs=2")
    trained("lightning", make_plan(*words, "threads=1", callback))
    comparison = compare(tmp_path / "lightning", tmp_path / "other")
    assert comparison.verdict == "identical", comparison.text()
    assert {"samples", "learning rate", "loss", "gradient norm"} <= comparison.quantities.keys()


def test_the_page_shows_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The port's schedule is found, and with the page's repair the two are identical; Accelerate's loop runs."""
    page = (ROOT / "docs" / "recorder.md").read_text()
    old, port, accelerate = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(old, names)
    exec(port, {})
    comparison = compare("runs/old", "runs/port")
    [shown] = re.findall(r"```\n(runs/old\n.*?)```", page, re.DOTALL)
    assert all(line.partition("…")[0].strip() in comparison.text() for line in shown.splitlines())
    assert "another program" in render(pair_page(Path("runs/old"), Path("runs/port"), comparison.content()))
    repaired = str(re.search(r"`(return \[optimizer\].*?)`", page)[1])  # type: ignore[index]
    exec(port.replace("return [optimizer], [schedule]", repaired), {})
    assert compare("runs/old", "runs/port").verdict == "identical"
    stand_in: dict[str, Any] = {
        "prepare": lambda *each: each,
        "backward": Tensor.backward,
        "accumulate": lambda _: nullcontext(),
    }
    exec(accelerate, {**names, "accelerator": SimpleNamespace(**stand_in, sync_gradients=True)})
    assert len(lines(Path("runs/accelerate"), "step")) == 16


@pytest.mark.slow
def test_ranks_are_recorded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECORDS", str(tmp_path))
    wrong_on(2, train_on_ranks)
    net = new_net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with Recorder(tmp_path / "one", net, optimizer) as recorder:
        for inputs, targets in loader():
            loss = mse_loss(net(inputs), targets)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            recorder.step(loss, inputs)
            optimizer.step()
    right, wrong = (compare(tmp_path / "one", tmp_path / name) for name in ("ddp", "past"))
    assert right.within_tolerance, right.text()
    assert right.tolerance.within == 1e-10
    assert wrong.first_divergence
    assert wrong.first_divergence.name == "gradient norm"
    assert "virtual" not in wrong.text()
    assert lines(tmp_path / "past", "step")[0]["grad_norm_spread"] > 0
    assert wrong.quantities["ranks of one run"].first
