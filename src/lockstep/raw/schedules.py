"""Steps of learning-rate schedules, as automatic optimization does them."""

from typing import TYPE_CHECKING, Any

from lockstep.config_error import config_error

if TYPE_CHECKING:
    from lockstep.raw.training import Training


def step_schedules(run: "Training", interval: str, index: int, plateau: bool) -> None:
    """Step the schedules of an interval (step or epoch) that are due; ReduceLROnPlateau by the value it monitors.

    Raises:
        ConfigError: nothing has logged that value.

    Args:
        index: of the batch or epoch that has ended, from 0.
        plateau: whether to step every ReduceLROnPlateau, or all others.
    """
    for config in [] if run.session.manual else run.trainer.lr_scheduler_configs:
        metric = run.trainer.callback_metrics.get(str(config.monitor)) if plateau else None
        is_due = config.interval == interval and (index + 1) % config.frequency == 0
        if not is_due or config.reduce_on_plateau != plateau:
            continue
        if plateau and metric is None and config.strict:
            reason = f"its ReduceLROnPlateau monitors {config.monitor}, which it does not log"
            logged = ", ".join(sorted(run.trainer.callback_metrics))
            raise config_error("model", run.session.plan.model.name, reason, f"one of {logged}")
        if metric is not None or not plateau:
            run.hooks.method("lr_scheduler_step", lr_scheduler_step)(config.scheduler, metric)


def lr_scheduler_step(scheduler: Any, metric: Any) -> None:
    scheduler.step(*([] if metric is None else [metric]))
