"""Create what a plan trains, and its data."""

from lockstep.checkpoint.content import Progress
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.session.trainee import Trainee


def create_trainee(plan: Plan, context: RankContext, begin: Progress, lightning: bool) -> Trainee:
    """Return what a plan trains. Its weights are drawn before anything else, so they are the same on every rank.

    Args:
        begin: where training begins.
        lightning: whether a plain net is to become a LightningModule, for a Trainer or for callbacks.
    """
    if plan.model.lightning:
        from lockstep.session.user_module import create_user_module  # with Lightning

        return create_user_module(plan, context, begin)
    from lockstep.session.task import create_task

    return create_task(plan, context, begin, lightning)
