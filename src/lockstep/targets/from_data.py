"""Arguments of a module that come from its data, as LightningCLI links arguments: the same rule for ours and theirs."""

import functools
import inspect
from collections.abc import Mapping
from typing import Any

from lockstep.config_error import ConfigError
from lockstep.schemas.data import Data
from lockstep.schemas.target import ARGS, KEY
from lockstep.targets.locate import locate, parameters_of

FROM_DATA = ("sample_shape", "num_classes", "num_outputs")


def filled(call: Mapping[str, Any], data: Data) -> dict[str, Any]:
    """Return the call of a module with what its data tells, for parameters of these names that are not given.

    That of its `net`, too. An explicit null stays null. `num_outputs` is the number of classes if there are some.
    """
    known: dict[str, Any] = {name: getattr(data, name) for name in FROM_DATA}
    known["num_outputs"] = known["num_outputs"] or known["num_classes"]
    known["sample_shape"] = data.sample_shape and [*data.sample_shape]  # as in a YAML file
    known = {name: value for name, value in known.items() if value is not None}

    def with_facts(key: str, target: Mapping[str, Any]) -> dict[str, Any]:
        call = functools.partial(locate(f"{key}.{KEY}", target[KEY]), *target.get(ARGS, ()))
        parameters = parameters_of(call)
        absent = {name: parameters[name] for name in FROM_DATA if name in parameters and name not in target}
        for name in absent.keys() - known.keys():
            if absent[name].default is inspect.Parameter.empty:
                of_data = f"self.{name} = … in the LightningDataModule"
                of_data += "" if name == "sample_shape" else ", or data.num_classes=VALUE for Datasets"
                hint = f"+{key}.{name}=VALUE, or {of_data}"
                raise ConfigError(f"{key}.{name} is missing, and the data does not tell it; write {hint}.")
        return {**target, **{name: known[name] for name in absent if name in known}}

    net = call.get("net")
    within = {"net": with_facts("model.net", net)} if isinstance(net, Mapping) and KEY in net else {}
    return {**with_facts("model", call), **within}
