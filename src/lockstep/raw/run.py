"""One run from its plan to its metrics, in this rank's place: the whole of it on one page."""

from contextlib import closing
from dataclasses import replace

from lockstep.launch.topology import RankContext
from lockstep.optimizers import create_optimizer
from lockstep.plan import Plan
from lockstep.raw.evaluation import evaluate
from lockstep.raw.precision import Precision
from lockstep.raw.report import Report
from lockstep.raw.training import Training, fit
from lockstep.run_files import Metrics
from lockstep.schedulers import create_scheduler
from lockstep.session import Session


def run(plan: Plan, context: RankContext) -> Metrics:
    """Train and test as the plan says. Every rank returns the same metrics."""
    if plan.by_module:
        from lockstep.raw.modules import run as run_module

        return run_module(plan, context)
    session = Session(plan, context)
    plan, net, at = session.plan, session.net, replace(session.start.at)
    precision = Precision(plan, session.device)
    wrapped = plan.strategy.wrap(plan, net)
    optimizer = create_optimizer(plan.optimizer, net)
    scheduler = create_scheduler(plan, optimizer)
    training = Training(session, wrapped, optimizer, scheduler, precision, Report(session), at)

    if plan.train and session.start.checkpoint is not None:
        training.state.load_state_dict(session.start.checkpoint)
        session.restore()
    elif not plan.train:
        session.load_weights()
    with session.running():
        if plan.train:
            with session.listening(), closing(training.report):
                fit(training)
        if plan.test:
            tested = session.end_test(evaluate(session, wrapped, precision, "test"))
            session.loggers.log_metrics({**tested, "epoch": training.at.begun}, training.at.steps)
        session.loggers.close(session.measured.results)
    return session.finish(training.at, training.seconds)
