"""Checks that need torch alone, made before Lightning is imported, which takes seconds: wrong values are told sooner.

They cover Lockstep's and torch's code: the command calls them, and imports no code of the user's.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.base.config_error import ConfigError
from lockstep.base.random_state import preserve_generators
from lockstep.plan.schemas.target import ARGS, KEY, Module
from lockstep.plan.targets.locate import check, create, user_errors

LIGHT = ("torch.nn.", "torch.optim.", "lockstep.nets.", "lockstep.models.optimizers.", "lockstep.models.schedulers.")
"""Beginnings of the paths of what is imported without Lightning."""
FACTS = {"sample_shape": [1, 32, 32], "num_classes": 10, "num_outputs": 10}
"""Stand-ins for what a net gets from its data."""


@preserve_generators()
def check_early(model: Module) -> None:
    """Raise a ConfigError for a wrong argument of the optimizer, the schedule or the net."""
    check_partials(model, only_light=True)
    net: Any = model.call.get("net")
    if is_light(net):
        check("model.net", net, FACTS)
        try:
            with torch.device("meta"):
                create("model.net", net, FACTS)
        except ConfigError as error:  # others may be due to the stand-ins
            if str(error).startswith(tuple(f"model.net.{name}=" for name in net)):
                raise


def is_light(value: Any) -> bool:
    """Whether a value is a target, and can be called without Lightning and code of the user's."""
    return isinstance(value, Mapping) and KEY in value and all(path.startswith(LIGHT) for path in paths_in(value))


def paths_in(value: object) -> list[str]:
    """Return the path of a target, and those of the targets among its arguments."""
    return re.findall(rf"'{KEY}': '([^']*)'", str(value))


class Reached(BaseException):
    """An optimizer has checked its options, and asks for its parameters."""


def no_parameters() -> Iterator[Tensor]:
    """Raise where an optimizer takes its parameters: next it needs torch._dynamo, which takes seconds to import."""
    raise Reached
    yield


def check_partials(model: Module, only_light: bool = False) -> None:
    """Check the optimizer and the schedule, so that wrong values are told by the keys that were typed."""
    for part in ("optimizer", "scheduler"):
        call, key = model.call.get(part), model.key_of(part)
        if not isinstance(call, Mapping) or KEY not in call or (only_light and not is_light(call)):
            continue
        if part == "scheduler":
            check(key, call)
            continue
        check(key, {**call, ARGS: [None]})
        optimizer = create(key, call)
        with suppress(Reached), user_errors(f"{key}.{KEY}={call[KEY]}", "it raises this when it is called."):
            if callable(optimizer):
                optimizer(no_parameters() if only_light else [nn.Parameter(torch.zeros(2, 2))])
