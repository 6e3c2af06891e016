"""One run by Lightning, from its plan to its metrics: module, data, callbacks, Trainer; fit and test."""

from lightning.pytorch.callbacks import Callback

from lockstep.checkpoint.content import Progress
from lockstep.launch.topology import RankContext
from lockstep.lit.datamodule import ShardedData
from lockstep.lit.hush import hush
from lockstep.lit.metrics import EpochMetrics
from lockstep.lit.module import Supervised
from lockstep.lit.plateau import PlateauStep
from lockstep.lit.progress import create_progress
from lockstep.lit.recording import RecordCallback
from lockstep.lit.saving import CheckpointCallback
from lockstep.lit.step_logger import StepLogger
from lockstep.lit.stopwatch import Stopwatch
from lockstep.lit.trainer import create_trainer
from lockstep.plan import Plan
from lockstep.run_files import Metrics
from lockstep.session import Session


def run(plan: Plan, context: RankContext) -> Metrics:
    """Train and test as the plan says. Every rank returns the same metrics."""
    if plan.by_module:
        from lockstep.lit.modules import run as run_module

        return run_module(plan, context)
    hush()
    session = Session(plan, context)
    plan, start, device = session.plan, session.start, session.device
    module = Supervised(session.net, plan, session.masks, session.counts)
    loaders = ShardedData(session.data, plan, context, start.at, device)
    stopwatch = Stopwatch()
    progress = create_progress(plan.trainer.enable_progress_bar)
    callbacks: list[Callback] = [stopwatch, EpochMetrics(session), progress]  # the last shows what is summed
    if plan.logger:
        callbacks.append(StepLogger(session))
    if plan.train:
        callbacks.append(RecordCallback(session))
        if plan.scheduler.interval == "plateau":
            callbacks.append(PlateauStep(session))
        callbacks.append(CheckpointCallback(session))
    trainer = create_trainer(plan, session.loggers.lightning, callbacks, phases=session.phases)

    with session.running():
        if session.finished:  # Lightning would not even restore it
            session.load_weights()
            session.restore()
            session.end_cut_epoch(start.at)
            session.recorder.end()
        elif plan.train:
            with session.listening():
                trainer.fit(module, loaders, ckpt_path=plan.ckpt_path, weights_only=True)
        if plan.test:
            ckpt_path = None if plan.train else plan.ckpt_path
            trainer.test(module, loaders, ckpt_path=ckpt_path, weights_only=True, verbose=False)
        session.loggers.close(session.measured.results)
    epochs, steps = max(trainer.current_epoch, start.at.begun), max(trainer.global_step, start.at.steps)
    return session.finish(Progress(epochs, 0, steps), stopwatch.seconds)
