"""A plain net trained by the loops of LightningModules, so that callbacks and loaders may go along with it.

What is computed, measured and saved is a plain net's (`lockstep.session`): the same task, metrics, record, curves and
checkpoints. The loops, and what callbacks see, are a LightningModule's.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch.optim import Optimizer

from lockstep import schemas
from lockstep.checkpoint.content import PREFIX
from lockstep.data.tensors import Batch
from lockstep.launch.topology import RankContext
from lockstep.monitor.epoch import EpochMonitor
from lockstep.own_module.create import LoaderSource
from lockstep.own_module.loaders import Taken
from lockstep.own_module.net_loaders import SplitSource
from lockstep.own_module.session import ModuleSession, as_tensors, rate_of
from lockstep.plan import Plan
from lockstep.run_files import Metrics
from lockstep.session import Session
from lockstep.sums.running import RunningSums


def create_session(plan: Plan, context: RankContext) -> ModuleSession:
    """By what the plan's model is."""
    return (ModuleSession if plan.model.lightning else NetSession)(plan, context)


class NetSession(ModuleSession):
    """`plain` is the session that the net would have alone."""

    def _create(self) -> None:
        from lockstep.own_module.net_module import NetModule  # with Lightning

        self.plain = plain = Session(self.plan, self.context)
        self.net, self.start, self.loggers, self.phases = plain.net, plain.start, plain.loggers, plain.phases
        self.module = NetModule(plain)
        if isinstance(self.plan.data, schemas.Loaders):
            self.source = LoaderSource(self.plan.data, self.module, self.plan.seed, self.plan.batch_size)
        else:
            self.source = SplitSource(plain, self.module)

    def _create_monitor(self) -> EpochMonitor:
        return self.plain.monitor

    @property
    def manual(self) -> bool:
        return False

    @property
    def heading(self) -> dict[str, str | int | float]:
        return self.plain.heading

    def _wrap_step(self) -> None:
        """The module weighs its loss itself, and its net is the virtual ranks where there are any."""

    def _forget_buffers(self) -> None:
        """Its net does."""

    def stepless(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return original

    def virtual_ranks(self) -> int:
        return 1

    def transfer(self, batch: Any, loader: int = 0) -> Any:
        return batch if isinstance(batch, Batch) else super().transfer(batch, loader)

    # around training

    def begin(self) -> None:
        if self.plan.train:
            self.recorder, self.checkpoints = self.plain.recorder, self.plain.checkpoints

    def load_weights(self) -> None:
        self.plain.load_weights()

    def restore(self) -> None:
        self.plain.restore()
        self.state.restore()
        self.results = dict(self.start.content.results) if self.start.content else {}

    def extra_state(self) -> Mapping[str, Any]:
        module, plain = self.state.saved(self.optimizers, within=self.at.batch > 0), self.plain.sums
        return self.checkpoints.extra_state(self.at, self.results, plain, self.net, module, self.ended, PREFIX)

    # a batch of training

    def begin_epoch(self) -> None:
        super().begin_epoch()
        curve, under_way = self.plain.curve, self.at.batch > 0
        curve.resume(curve.sums if under_way else RunningSums(self.plan.objective))

    def _show_net(self, batch: Any) -> None:
        """Of other data the session of the net has shown it."""
        if isinstance(self.plan.data, schemas.Loaders):
            self.plain.show_net(self.module.ready(batch).inputs[:1])

    def _take(self, taken: Taken) -> None:
        self.taken = taken
        plan, empty, batches = self.plan, self.taken.stand_in, self.batches_per_step
        window = self.taken.window or self.taken.samples * batches
        self.module.begin(plan.world_size * batches / window, empty)
        self.plain.masks.begin(self.at.epochs, self.at.batch)
        self.logged.enter("train")
        self.logged.begin_batch(0 if empty else self.taken.own)

    def before_optimizer_step(self, optimizer: Optimizer) -> None:
        self.plain.counts.weigh(self.recorder.parameters)
        self.stepping = [(optimizer, rate_of([optimizer]), [*self.recorder.norms(self.recorder.parameters)])]

    def _record_batch(self) -> None:
        ids = self.taken.ids
        self.recorder.batch(self.module.stats, ids[:0] if self.taken.stand_in else ids)
        self.plain.measured.epoch.add(self.module.stats)

    def _end_work(self) -> None:
        """The session of the net tells it."""

    def _show_epoch(self) -> None:
        """So it does."""

    def log_points(self, due: bool) -> None:
        curve = self.plain.curve
        if self.plan.logger:
            curve.add(self.module.stats)
            if due and self.at.steps % self.plan.log_every_n_steps == 0:
                self.loggers.log_metrics(curve.point(self.stepping[0][1]), self.at.steps)
        super().log_points(due)

    # evaluations and the ends of epochs

    def begin_evaluation(self, stage: str) -> None:
        super().begin_evaluation(stage)
        self.module.evaluation = self.plain.begin_evaluation(stage)

    def end_stage(self, trainer: Any, stage: str) -> None:
        """A training epoch's sums meet those of the other ranks in the message of its validation, if it has one."""
        if self.checking:
            super().end_stage(trainer, stage)
            return
        measured, found = self.plain.measured, dict[str, float]()
        if stage == "test":
            found = self.plain.end_test(self.module.evaluation.totals)
            self._to_loggers(found, self.at.begun)
        elif stage == "val":
            found = measured.end_epoch(self.module.evaluation.totals)
            self.epoch_values |= found
            self.plain.log_epoch(found, trainer.current_epoch, self.at.steps)
        elif not self.validated:
            measured.end_epoch(None)
            if not self.cut:
                self.plain.log_epoch({}, trainer.current_epoch, self.at.steps)
        self.results |= measured.results
        trainer.callback_metrics.update(as_tensors(measured.results))
        trainer.logged_metrics.update(as_tensors(found))
        trainer.progress_bar_metrics.update(measured.results)
        super().end_stage(trainer, stage)

    def _update_best(self, values: Mapping[str, float]) -> None:
        self.plain.update_best(self.at.epochs)

    def finish(self, seconds: float) -> Metrics:
        own = self.plain.finish(self.at, seconds)
        logged = {name: value for name, value in self.results.items() if name not in own}
        return {**own, **logged, "digest": self.digest or own["digest"]}
