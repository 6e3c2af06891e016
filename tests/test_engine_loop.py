"""The fast epoch loop calls the same hooks with the same values as Lightning's own loop, and counts the same."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lockstep.engine.loop import FastTrainingEpochLoop, Hooks
from tests.conftest import IN_PROCESS

pytestmark = IN_PROCESS

HOOKS = (
    *("on_train_start", "on_train_epoch_start", "on_train_batch_start", "on_before_zero_grad", "on_before_backward"),
    *("on_after_backward", "on_before_optimizer_step", "on_train_batch_end", "on_validation_start"),
    *("on_validation_end", "on_train_epoch_end"),
)


class Module(pl.LightningModule):
    """Least squares; appends to `calls` what happens."""

    def __init__(self, calls: list[Any], returns: str = "dict") -> None:
        super().__init__()
        self.net, self.calls, self.returns = nn.Linear(2, 1), calls, returns

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Any:
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.net(inputs), targets)
        self.calls.append(("training_step", batch_idx, self.trainer.global_step, loss.item()))
        if self.returns == "nothing" and batch_idx == 1:
            return None
        return loss if self.returns == "loss" else {"loss": loss, "extra": batch_idx}

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.calls.append(("validation_step", batch_idx))

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        gradient = self.net.weight.grad
        self.calls.append(("module: on_before_optimizer_step", None if gradient is None else gradient.tolist()))

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.calls.append(("module: on_train_batch_end", batch_idx))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class WithZeroGrad(Module):
    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
        self.calls.append(("optimizer_zero_grad", epoch, batch_idx))
        optimizer.zero_grad()


class WithClipping(Module):
    def configure_gradient_clipping(self, optimizer: torch.optim.Optimizer, *arguments: Any, **options: Any) -> None:
        self.calls.append(("configure_gradient_clipping", arguments, options))


class WithoutBatchIdx(Module):
    def training_step(self, batch: list[Tensor]) -> Any:  # type: ignore[override]
        return super().training_step(batch, 0)


class Listener(Callback):
    """Appends every hook, its arguments and the trainer's counts to `calls`."""

    def __init__(self, calls: list[Any]) -> None:
        for name in HOOKS:
            setattr(self, name, self._hook(name, calls))

    def _hook(self, name: str, calls: list[Any]) -> Callable[..., None]:
        def hook(trainer: pl.Trainer, module: pl.LightningModule, *arguments: Any) -> None:
            progress = trainer.fit_loop.epoch_loop.batch_progress.state_dict()
            counts = trainer.global_step, trainer.current_epoch, trainer.is_last_batch, progress
            calls.append((name, [plain(argument) for argument in arguments], counts))

        return hook


def plain(value: Any) -> Any:
    """Return a value that can be compared by ==."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return type(value).__name__ if isinstance(value, torch.optim.Optimizer) else value


def trained(
    loop: Callable[..., _TrainingEpochLoop], kind: type[Module] = Module, returns: str = "dict", **options: Any
) -> tuple[list[Any], Any]:
    """Return all calls of two epochs, and the trainer's state at the end."""
    torch.manual_seed(0)
    calls: list[Any] = []
    module = kind(calls, returns)
    loader = DataLoader(TensorDataset(torch.randn(14, 2), torch.randn(14, 1)), batch_size=3)
    quiet: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", num_sanity_val_steps=0, callbacks=[Listener(calls)], **quiet, **options
    )
    default = trainer.fit_loop.epoch_loop
    data = SimpleNamespace(transfer=lambda batch: [tensor.to(module.dtype) for tensor in batch])
    first: Any = () if loop is _TrainingEpochLoop else (SimpleNamespace(data=data),)
    trainer.fit_loop.epoch_loop = loop(*first, trainer, default.min_steps, default.max_steps)
    trainer.fit(module, loader, loader)
    state = trainer.fit_loop.state_dict()
    return calls, (state, trainer.global_step, plain(module.net.state_dict()), plain(trainer.callback_metrics))


@pytest.mark.parametrize(
    "case",
    [
        {"accumulate_grad_batches": 3, "gradient_clip_val": 0.1},
        {"precision": "bf16-mixed"},
        {"val_check_interval": 2},
        {"limit_train_batches": 3, "returns": "loss"},
        {"returns": "nothing"},
        {"kind": WithZeroGrad, "accumulate_grad_batches": 2},
        {"kind": WithClipping},
        {"kind": WithoutBatchIdx},
    ],
    ids=str,
)
def test_calls_and_counts_are_the_same(case: dict[str, Any]) -> None:
    fast = trained(FastTrainingEpochLoop, **case)
    assert fast == trained(_TrainingEpochLoop, **case)
    assert {name for name, *_ in fast[0]} >= {*HOOKS, "training_step"}


def test_the_comparison_sees_a_missing_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Hooks.call

    def incomplete(self: Hooks, name: str, *rest: Any) -> Any:
        return name != "on_after_backward" and call(self, name, *rest)

    monkeypatch.setattr(Hooks, "call", incomplete)
    assert trained(FastTrainingEpochLoop) != trained(_TrainingEpochLoop)
