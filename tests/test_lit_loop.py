"""The lean loop calls what Lightning's own calls: the same hooks with the same values, and the same counts."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from lightning.pytorch.profilers import SimpleProfiler
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lockstep.lit.loop import HOOKS, FastTrainingEpochLoop
from lockstep.sums.phases import Phases

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

EPOCH_HOOKS = (
    "on_train_start",
    "on_train_epoch_start",
    "on_validation_start",
    "on_validation_end",
    "on_train_epoch_end",
)


@pytest.fixture(autouse=True)
def threads_as_they_were() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


class Module(pl.LightningModule):
    """Least squares, which logs each step's loss."""

    def __init__(self, said: list[Any], returns: str = "dict") -> None:
        super().__init__()
        self.net, self.said, self.returns = nn.Linear(2, 1), said, returns

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Any:
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.net(inputs), targets)
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.said.append(("training_step", batch_idx, self.trainer.global_step, loss.item()))
        if self.returns == "nothing" and batch_idx == 1:
            return None
        return loss if self.returns == "loss" else {"loss": loss, "extra": batch_idx}

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.said.append(("validation_step", batch_idx))

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        gradient = self.net.weight.grad
        self.said.append(("module: on_before_optimizer_step", None if gradient is None else gradient.tolist()))

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.said.append(("module: on_train_batch_end", batch_idx))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class OwnZeroGrad(Module):
    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
        self.said.append(("optimizer_zero_grad", epoch, batch_idx))
        optimizer.zero_grad()


class OwnStep(Module):
    def optimizer_step(self, *arguments: Any, **options: Any) -> None:
        self.said.append(("optimizer_step", arguments[:2]))
        super().optimizer_step(*arguments, **options)


class OwnClipping(Module):
    def configure_gradient_clipping(self, optimizer: torch.optim.Optimizer, *arguments: Any, **options: Any) -> None:
        self.said.append(("configure_gradient_clipping", arguments, options))


class Unnumbered(Module):
    def training_step(self, batch: list[Tensor]) -> Any:  # type: ignore[override]
        return super().training_step(batch, 0)


class Listener(Callback):
    """Says every hook of a batch and of an epoch, with what it was handed, and the trainer's counts."""

    def __init__(self, said: list[Any]) -> None:
        self.said = said
        for name in (*HOOKS, *EPOCH_HOOKS):
            setattr(self, name, self._hearing(name))

    def _hearing(self, name: str) -> Callable[..., None]:
        def heard(trainer: pl.Trainer, module: pl.LightningModule, *arguments: Any) -> None:
            progress = trainer.fit_loop.epoch_loop.batch_progress.state_dict()
            counts = trainer.global_step, trainer.current_epoch, trainer.is_last_batch, progress
            self.said.append((name, [plain(own) for own in arguments], counts))

        return heard


def session_of_one_rank(module: pl.LightningModule) -> Any:
    """Return what the loop needs of a session, where the loss has no weight."""
    step = SimpleNamespace(backward=lambda loss, batches, _: (loss / batches).backward())
    data = SimpleNamespace(transfer=lambda batch: [tensor.to(module.dtype) for tensor in batch])
    return SimpleNamespace(phases=Phases(), step=step, data=data)


def plain(value: Any) -> Any:
    """What can be compared by ==."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(own) for key, own in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(own) for own in value]
    return type(value).__name__ if isinstance(value, torch.optim.Optimizer) else value


def heard(
    loop: Callable[..., _TrainingEpochLoop], kind: type[Module] = Module, returns: str = "dict", **options: Any
) -> tuple[list[Any], Any]:
    """All that happened in two epochs, and the trainer's state at the end."""
    torch.manual_seed(0)
    said: list[Any] = []
    module = kind(said, returns)
    loader = DataLoader(TensorDataset(torch.randn(14, 2), torch.randn(14, 1)), batch_size=3)
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[Listener(said)],
        **options,
    )
    object.__setattr__(module, "log", lambda *_, **__: None)  # the session's log in a run
    steps = trainer.fit_loop.epoch_loop.min_steps, trainer.fit_loop.epoch_loop.max_steps
    session: Any = () if loop is _TrainingEpochLoop else (session_of_one_rank(module),)
    trainer.fit_loop.epoch_loop = loop(*session, trainer, *steps)
    trainer.fit(module, loader, loader)
    state = trainer.fit_loop.state_dict()
    return said, (state, trainer.global_step, plain(module.net.state_dict()), plain(trainer.callback_metrics))


@pytest.mark.parametrize(
    "case",
    [
        {},
        {"accumulate_grad_batches": 2},
        {"accumulate_grad_batches": 3, "gradient_clip_val": 0.1},
        {"gradient_clip_val": 0.1, "gradient_clip_algorithm": "value"},
        {"precision": "bf16-mixed"},
        {"precision": "64-true"},
        {"val_check_interval": 2},
        {"check_val_every_n_epoch": 2},
        {"max_steps": 7},
        {"limit_train_batches": 3},
        {"returns": "loss"},
        {"returns": "nothing"},
        {"kind": OwnZeroGrad, "accumulate_grad_batches": 2},
        {"kind": OwnStep},
        {"kind": OwnClipping},
        {"kind": Unnumbered},
    ],
    ids=str,
)
def test_what_is_called_and_counted_is_the_same(case: dict[str, Any]) -> None:
    lean, own = heard(FastTrainingEpochLoop, **case), heard(_TrainingEpochLoop, **case)
    assert lean == own
    assert {name for name, *_ in lean[0]} >= {*HOOKS, *EPOCH_HOOKS, "training_step"}


def test_the_comparison_catches_a_hook_left_out() -> None:
    class Deaf(FastTrainingEpochLoop):
        def _call(self, name: str, *args: Any) -> None:
            if name != "on_after_backward":
                super()._call(name, *args)

    assert heard(Deaf) != heard(_TrainingEpochLoop)


@pytest.mark.parametrize(
    ("case", "plain_run"),
    [({}, True), ({"profiler": SimpleProfiler()}, False), ({"kind": OwnStep}, False), ({"kind": OwnClipping}, True)],
    ids=["plain", "profiler", "own step", "own clipping"],
)
def test_where_a_run_is_not_plain_lightnings_own_loop_does_it(case: dict[str, Any], plain_run: bool) -> None:
    found = []

    class Watched(FastTrainingEpochLoop):
        def on_run_start(self, data_fetcher: Any) -> None:
            super().on_run_start(data_fetcher)
            found.append(self.fast_path)

    heard(Watched, **case)
    assert found == [plain_run, plain_run]
