"""One run of a LightningModule from its plan to its metrics, in this rank's place: the whole of it on one page."""

from lockstep.launch.topology import RankContext
from lockstep.own_module.callbacks import create_callbacks
from lockstep.own_module.net_session import create_session
from lockstep.plan import Plan
from lockstep.raw.modules.evaluation import evaluate
from lockstep.raw.modules.hooks import Hooks
from lockstep.raw.modules.state import load_state
from lockstep.raw.modules.trainer import RawTrainer
from lockstep.raw.modules.training import Training, fit
from lockstep.raw.precision import Precision
from lockstep.run_files import Metrics


def run(plan: Plan, context: RankContext) -> Metrics:
    """Train and test as the plan says. Every rank returns the same metrics."""
    session = create_session(plan, context)
    plan, module, source = session.plan, session.module, session.source
    with session.running() as curves:
        trainer = RawTrainer(session, curves)
        hooks = Hooks(trainer, module)
        module.trainer = trainer
        trainer.take_callbacks(create_callbacks(plan))
        if source.is_data_module:
            source.owner.trainer = trainer
            source.owner.setup("fit" if plan.train else "test")
        hooks.call("setup", stage="fit" if plan.train else "test")
        module.configure_model()
        module.zero_grad()
        run = Training(session, trainer, hooks, Precision(plan, session.device))
        run.prepare()
        session.begin()
        load_state(run)
        if plan.train and not session.finished:
            with session.listening(), run.showing():
                fit(run)
        elif session.finished:
            session.restore()
            session.end_cut_epoch(trainer)
            session.end_training()
        if plan.test and session.runs("test"):
            if plan.train:
                if source.is_data_module:
                    source.owner.setup("test")
                hooks.call("setup", stage="test")
            evaluate(run, "test")
        hooks.call("teardown", stage="fit" if plan.train else "test")
        curves.close(session.results)
        return session.finish(run.seconds)
