"""Before any rank starts: what code of the user's own comes to, that a configuration names.

It is asked in a child of the fork server, so that the command imports no torch and nothing of theirs is kept; in this
process where it is itself the rank.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lockstep import launch, schemas, targets
from lockstep.schemas.engine import ENGINES
from lockstep.schemas.target import PARTIAL
from lockstep.schemas.task import Samples

FROM_DATA = ("shape", "outputs")
"""What a net gets from the data, if it has parameters of these names."""


def inspected(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a plan, with what its data says of itself.

    Raises:
        ConfigError: a target cannot be imported, takes other arguments, or makes something else than it should.
    """
    own = {group: values[group] for group in schemas.OWN_CODE if isinstance(values[group], schemas.Target)}
    own |= {one.key: one for group in schemas.SEVERAL for one in values[group] if isinstance(one, schemas.OneOfSeveral)}
    if not own:
        return values
    samples = values["task"].samples
    if launch.rank_from_env() is not None or values["strategy"].in_process:
        with targets.edited_modules_anew():
            found = inspect(own, values["optimizer"], values["seed"], samples)
    else:
        engine = values["engine"].name
        launch.start_forkserver(*(ENGINES[name] for name in ENGINES if engine in (name, "both")))
        from lockstep.launch.child import in_child  # with torch

        found = in_child(inspect, own, values["optimizer"], values["seed"], samples)
    for group in found.keys() - {"data"}:
        values = {**values, group: replace(values[group], **found[group])}
    if "data" not in found:
        return values
    parts = {key: tuple(found["data"][key]) for key in ("shape", "parts")}
    data = replace(values["data"], **{**found["data"], **parts})
    return {**values, "data": data, "test": values["test"] and data.test_size > 0}


def inspect(
    own: Mapping[str, schemas.Target], optimizer: schemas.Optimizer, seed: int, samples: Samples
) -> dict[str, dict[str, Any]]:
    """By group, the code that is to be called. What data and task say of themselves, by group.

    Args:
        optimizer: that a schedule is tried on.
        samples: what the task takes for a sample.
    """
    found = {}
    if "model" in own:
        targets.check("model", own["model"].call, dict.fromkeys(FROM_DATA))
    if "optimizer" in own:
        targets.check("optimizer", {**own["optimizer"].call, PARTIAL: True}, ours=["params"])
    if isinstance(scheduler := own.get("scheduler"), schemas.OwnScheduler):
        from lockstep.schedulers import describe_scheduler  # with torch

        found["scheduler"] = describe_scheduler(scheduler, optimizer)
    if isinstance(task := own.get("task"), schemas.OwnTask):
        targets.check("task", task.call)
        from lockstep.targets.task import describe_task  # with torch

        found["task"] = describe_task(task)
    for choice in own.values():
        if isinstance(choice, schemas.OwnLogger):
            from lockstep.loggers.for_lightning import check  # with Lightning

            check(choice)
    if isinstance(data := own.get("data"), schemas.OwnData):
        from lockstep.data.own import describe  # with torch

        found["data"] = describe(data, seed, samples)
    return found
