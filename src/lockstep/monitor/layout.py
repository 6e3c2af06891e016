"""Which curves share a chart: training and validation, what a step takes."""

from lockstep.loggers.tensorboard import Layout
from lockstep.monitor.work import WORK
from lockstep.plan import Plan


def layout_of(plan: Plan) -> Layout:
    """The layout of the page *Custom scalars*."""
    if plan.model.lightning:  # whatever it calls them
        train_and_val = {"loss": ["^(train|val|valid|validation)[/_].*loss.*$"], "accuracy": ["^(train|val).*acc.*$"]}
    else:
        names = [name.removeprefix("val/") for name in plan.objective.names("val")]
        train_and_val = {name: [rf"^(train|val)/{name}$"] for name in names}
    return {
        "training and validation": train_and_val,
        "learning rate": {"learning rate": ["^train/lr$", "^lr-.*$"]},
        "what a step takes": {
            "seconds by phase": [f"^{WORK}/step_seconds/.*$"],
            "samples per second": [f"^{WORK}/samples_per_second$"],
            "memory": [f"^{WORK}/memory_GiB$"],
        },
    }
