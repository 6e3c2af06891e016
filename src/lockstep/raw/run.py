"""One run from its plan to its metrics, in one rank."""

from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.raw.evaluation import evaluate
from lockstep.raw.loop import fit
from lockstep.raw.state import load_state
from lockstep.raw.trainer import RawTrainer
from lockstep.raw.training import Training
from lockstep.run_files import Metrics
from lockstep.session.callbacks import create_callbacks
from lockstep.session.session import Session


def run(plan: Plan, context: RankContext) -> Metrics:
    """Train and test as the plan says. Every rank returns the same metrics."""
    session = Session(plan, context, lightning=bool(plan.callbacks))
    plan, stage = session.plan, "fit" if plan.train else "test"
    with session.running() as loggers:
        trainer = session.module.trainer = RawTrainer(session, loggers)
        trainer.add_callbacks(create_callbacks(plan))
        training = Training(session, trainer)
        training.setup(stage)
        training.hooks.call("configure_model")
        training.prepare()
        session.begin()
        load_state(training)
        if session.progress.is_finished:
            session.end_finished(trainer)
        elif plan.train:
            with session.progress.accepting_stop():
                fit(training)
        if plan.test and session.data.runs("test"):
            if plan.train:
                training.setup("test")
            evaluate(training, "test")
        training.hooks.call("teardown", stage=stage)
        loggers.close()
        return session.results.finish()
