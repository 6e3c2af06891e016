"""One run of a LightningModule by Lightning, from its plan to its metrics: the user's module and data, a Trainer."""

from lightning.pytorch.callbacks import ProgressBar

from lockstep.launch.topology import RankContext
from lockstep.lit.hush import hush
from lockstep.lit.modules.checkpoint import ModuleCheckpointIO
from lockstep.lit.modules.following import Following
from lockstep.lit.progress import create_progress
from lockstep.lit.stopwatch import Stopwatch
from lockstep.lit.trainer import create_trainer
from lockstep.own_module.callbacks import create_callbacks
from lockstep.own_module.net_session import create_session
from lockstep.plan import Plan
from lockstep.progress import shows_bar
from lockstep.run_files import Metrics


def run(plan: Plan, context: RankContext) -> Metrics:
    """Train and test as the plan says. Every rank returns the same metrics."""
    hush()
    session = create_session(plan, context)
    plan, module, source = session.plan, session.module, session.source
    datamodule = source.owner if source.is_data_module else None
    with session.running() as curves:
        stopwatch, bar = Stopwatch(), plan.trainer.enable_progress_bar
        following = Following(session)
        theirs = create_callbacks(plan)
        has_bar = any(isinstance(own, ProgressBar) for own in theirs)
        shows = [create_progress(bar, own=True)] if shows_bar(bar) and not has_bar else []
        callbacks = [stopwatch, following, *shows, *theirs]
        trainer = create_trainer(plan, curves.lightning, callbacks, ModuleCheckpointIO(session))
        following.follow(trainer)
        if session.finished:
            session.begin()
            session.load_weights()
            session.restore()
            session.end_cut_epoch(trainer)
            session.end_training()
        elif plan.train:
            with session.listening():
                trainer.fit(module, datamodule=datamodule, ckpt_path=plan.ckpt_path, weights_only=True)
        if plan.test and session.runs("test"):
            ckpt_path = None if plan.train else plan.ckpt_path
            trainer.test(module, datamodule=datamodule, ckpt_path=ckpt_path, weights_only=True, verbose=False)
        curves.close(session.results)
        return session.finish(stopwatch.seconds)
