"""Steps of learning-rate schedules, as automatic optimization does them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.raw.training import Training


def step_schedules(run: "Training", interval: str, index: int, plateau: bool) -> None:
    """Step the schedules of an interval (step or epoch) that are due; ReduceLROnPlateau by the value it monitors.

    Args:
        index: of the batch or epoch that has ended, from 0.
        plateau: whether to step every ReduceLROnPlateau, or all others.
    """
    for config in [] if run.session.manual else run.trainer.lr_scheduler_configs:
        metric = run.trainer.callback_metrics.get(str(config.monitor)) if plateau else None
        is_due = config.interval == interval and (index + 1) % config.frequency == 0
        if is_due and config.reduce_on_plateau == plateau and (metric is not None or not plateau):
            run.hooks.method("lr_scheduler_step", lr_scheduler_step)(config.scheduler, metric)


def lr_scheduler_step(scheduler: Any, metric: Any) -> None:
    scheduler.step(*([] if metric is None else [metric]))
