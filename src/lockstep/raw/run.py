"""One run from its plan to its metrics, in one rank."""

from typing import Any

from torch.optim import LBFGS, SGD

from lockstep.callbacks import monitoring_callbacks
from lockstep.config_error import require
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.raw.loop import evaluate, fit
from lockstep.raw.optimization import watch_manual_steps
from lockstep.raw.state import load_state
from lockstep.raw.trainer import RawTrainer
from lockstep.run_files import Metrics
from lockstep.session.callbacks import Hooks, create_callbacks
from lockstep.session.lightning_module import configured
from lockstep.session.session import Session
from lockstep.strategies.strategy import Wrapped
from lockstep.targets.kinds import overrides


def run(plan: Plan, context: RankContext) -> Metrics:
    """Train and test as the plan says. Every rank returns the same metrics."""
    session = Session(plan, context)
    with session.running():
        trainer = session.module.trainer = RawTrainer(session, session.loggers.loggers)
        trainer.add_callbacks([*monitoring_callbacks(session), *create_callbacks(session.plan)])
        training = Training(session, trainer)
        try:
            training.fit_and_test()
        except BaseException as exception:
            training.report(exception)
            raise
        session.loggers.close()
        return session.results.finish()


class Training:
    """A module prepared for training: its session, trainer, hooks and precision, and the wrapped training step."""

    wrapped: Wrapped

    def __init__(self, session: Session, trainer: RawTrainer) -> None:
        self.session, self.trainer, self.module = session, trainer, session.module
        self.hooks, self.precision = Hooks(trainer, session.module), trainer.precision_plugin

    def fit_and_test(self) -> None:
        session, plan = self.session, self.session.plan
        self.setup("fit" if plan.train else "test")
        self.hooks.call("configure_model")
        self.prepare()
        session.begin(self.trainer.callbacks)
        load_state(self)
        if session.start.is_finished:
            session.end_finished(self.trainer)
        elif plan.train:
            with session.progress.accepting_stop():
                fit(self)
        if plan.train:
            self.teardown("fit")
        if plan.test and session.data.runs("test"):
            if plan.train:
                self.setup("test")
                session.choose_net_to_test()
            evaluate(self, "test")
            self.teardown("test")

    def setup(self, stage: str) -> None:
        """Set up the data, then callbacks and the module, for fit or test."""
        if (datamodule := self.trainer.datamodule) is not None:
            datamodule.trainer = self.trainer
            datamodule.setup(stage)
        self.hooks.call("setup", stage=stage)

    def teardown(self, stage: str) -> None:
        if self.trainer.datamodule is not None:
            self.trainer.datamodule.teardown(stage)
        self.hooks.call("teardown", stage=stage)

    def report(self, exception: BaseException) -> None:
        for hook in self.hooks.of_callbacks("on_exception"):
            hook(exception)
        if self.trainer.datamodule is not None:
            self.trainer.datamodule.on_exception(exception)

    def prepare(self) -> None:
        """Move the module onto its device, wrap it by its strategy, then configure its optimizers."""
        session, trainer, module = self.session, self.trainer, self.module
        self.wrapped = session.plan.strategy.wrap(session.plan, module)
        if session.plan.train:
            optimizers, trainer.lr_scheduler_configs = configured(module.configure_optimizers())
            trainer.optimizers = optimizers = optimizers or [NoOptimizer()]
            count = len(optimizers)
            object.__setattr__(module, "optimizers", lambda *_, **__: optimizers[0] if count == 1 else optimizers)
            reason = f"its configure_optimizers returns {count} optimizers, and automatic optimization has one"
            fits = session.manual or count == 1
            require(fits, "model", session.plan.model.name, reason, "self.automatic_optimization = False in it")
            scales = not overrides(module, "optimizer_step") and not any(isinstance(each, LBFGS) for each in optimizers)
            reason = "it overrides optimizer_step or steps by LBFGS, past the gradient scaler of precision=16-mixed"
            hint = "precision=bf16-mixed, or engine=lightning"
            require(scales or self.precision.scale is None, "model", session.plan.model.name, reason, hint)
            if session.manual:
                watch_manual_steps(self)
        session.step.watch(trainer.optimizers, self.wrapped.ddp)


class NoOptimizer(SGD):
    """The optimizer of a module that configures none: its steps are counted and change nothing, as in Lightning."""

    def __init__(self) -> None:
        super().__init__([{"params": []}], lr=0.0)
        self.param_groups = []

    def state_dict(self) -> dict[str, Any]:
        return {}
