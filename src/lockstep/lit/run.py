"""One run by Lightning, from its plan to its metrics: module, data, callbacks, Trainer; fit and test."""

from lightning.pytorch.callbacks import ProgressBar

from lockstep.callbacks import monitoring_callbacks
from lockstep.launch.topology import RankContext
from lockstep.lit.callback import SessionCallback
from lockstep.lit.trainer import create_trainer, silence_warnings
from lockstep.plan import Plan
from lockstep.run_files import Metrics
from lockstep.session.callbacks import create_callbacks
from lockstep.session.session import Session


def run(plan: Plan, context: RankContext) -> Metrics:
    """Train and test as the plan says. Every rank returns the same metrics."""
    silence_warnings()
    session = Session(plan, context)
    plan, module, source = session.plan, session.module, session.data.source
    datamodule = source.data_module
    with session.running():
        callback, callbacks = SessionCallback(session), [*monitoring_callbacks(session), *create_callbacks(plan)]
        if any(isinstance(each, ProgressBar) for each in callbacks):
            session.results.display.has_bar = False
        trainer = create_trainer(session, [callback, *callbacks])
        callback.attach(trainer)
        if session.start.is_finished:  # Lightning would not even restore it
            session.begin([])
            session.load_weights(session.start.checkpoint)
            session.end_finished(trainer)
        elif plan.train:
            with session.progress.accepting_stop():
                trainer.fit(module, datamodule=datamodule, ckpt_path=plan.ckpt_path, weights_only=True)
        if plan.test and session.data.runs("test"):
            session.choose_net_to_test()
            ckpt_path = None if plan.train else plan.ckpt_path
            trainer.test(module, datamodule=datamodule, ckpt_path=ckpt_path, weights_only=True, verbose=False)
        session.loggers.close()
        return session.results.finish()
