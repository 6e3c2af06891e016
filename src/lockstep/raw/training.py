"""The objects that the loops of the raw engine share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lockstep.progress import shows_bar
from lockstep.raw.hooks import Hooks
from lockstep.raw.manual_optimization import manual_backward, watch_manual_steps
from lockstep.raw.optimization import NoOptimizer
from lockstep.raw.precision import Precision
from lockstep.raw.trainer import RawTrainer
from lockstep.session.schedules import configured
from lockstep.session.session import Session
from lockstep.strategies.strategy import Wrapped

if TYPE_CHECKING:
    from lockstep.run_bar import RunBar


class Training:
    """A module, prepared for training: its session, its trainer, its hooks, what wraps its step, and the bar."""

    wrapped: Wrapped

    def __init__(self, session: Session, trainer: RawTrainer, hooks: Hooks) -> None:
        self.session, self.trainer, self.hooks = session, trainer, hooks
        self.module, self.precision = session.module, Precision(session.plan, session.device)
        shows = trainer.is_global_zero and shows_bar(session.plan.trainer.enable_progress_bar)
        self.bar: RunBar | None = None
        if shows:
            from lockstep import run_bar

            self.bar = run_bar.RunBar(session.plan.max_epochs, trainer.num_training_batches)

    def prepare(self) -> None:
        """Move the module onto its device, wrap it by its strategy, then configure its optimizers."""
        session, trainer = self.session, self.trainer
        self.wrapped = session.plan.strategy.wrap(session.plan, self.module)
        trainer.manual_backward = lambda *arguments, **named: manual_backward(self, *arguments, **named)
        if session.plan.train:
            optimizers, trainer.lr_scheduler_configs = configured(self.module.configure_optimizers())
            trainer.optimizers = optimizers or [NoOptimizer()]
            trainer.check_optimizers(self.module)
        session.step.watch(trainer.callbacks, trainer.optimizers, self.wrapped.ddp)
        if session.manual:
            watch_manual_steps(self)

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Close the progress bar when training ends or fails."""
        try:
            yield
        finally:
            if self.bar is not None:
                self.bar.close()
