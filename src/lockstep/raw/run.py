"""One run from its plan to its metrics, in one rank."""

from lockstep.callbacks import monitoring_callbacks
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
    session = Session(plan, context)
    with session.running():
        trainer = session.module.trainer = RawTrainer(session)
        trainer.add_callbacks([*monitoring_callbacks(session), *create_callbacks(session.plan)])
        training = Training(session, trainer)
        try:
            fit_and_test(training, session.plan)
        except BaseException as exception:
            training.report(exception)
            raise
        session.loggers.close()
        return session.results.finish()


def fit_and_test(training: Training, plan: Plan) -> None:
    session = training.session
    training.setup("fit" if plan.train else "test")
    training.hooks.call("configure_model")
    training.prepare()
    session.begin(training.trainer.callbacks)
    load_state(training)
    if session.start.is_finished:
        session.end_finished(training.trainer)
    elif plan.train:
        with session.progress.accepting_stop():
            fit(training)
    if plan.train:
        training.teardown("fit")
    if plan.test and session.data.runs("test"):
        if plan.train:
            training.setup("test")
            session.choose_net_to_test()
        evaluate(training, "test")
        training.teardown("test")
