"""An example for a LightningModule's forward, which is shown: the module's own, or a sample of its first batch."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from lockstep.config_error import ConfigError
from lockstep.loaders.batch_slices import slice_batch
from lockstep.loggers import Loggers
from lockstep.monitor.net import ONE_SAMPLE, Example, show_net
from lockstep.plan import Plan
from lockstep.targets.kinds import overrides


def show_module(
    plan: Plan, loggers: Loggers, module: Any, batch: Any, device: torch.device, transfer: Callable[[Any], Any]
) -> None:
    """Show the module with its first batch. To be called by every rank.

    Args:
        transfer: moves a batch to the device, in the plan's dtype.
    """
    array = transfer(module.example_input_array)
    if isinstance(array, Mapping):
        example = Example((), array, "its example_input_array")
    elif array is not None:
        example = Example(array if isinstance(array, tuple) else (array,), of="its example_input_array")
    else:
        example = _example(module, batch) if overrides(module, "forward") else Example()
    with plan.strategy.tensors.full_weights(module):
        show_net(plan, loggers, module, example, device)


def _example(module: Any, batch: Any) -> Example:
    """Return the elements of a batch that `forward` takes; of a mapping those with the names of its parameters."""
    try:
        batch, of = slice_batch(batch, slice(1)), ONE_SAMPLE
    except ConfigError:
        of = "a batch"
    parameters = inspect.signature(module.forward).parameters.values()
    needed = [each for each in parameters if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
    if isinstance(batch, Mapping) and not (len(needed) == 1 and needed[0].name not in batch):
        takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters)
        names = {each.name for each in parameters}
        return Example((), {key: value for key, value in batch.items() if takes_all or key in names}, of)
    if isinstance(batch, list | tuple):
        return Example((*batch[: max(1, len(needed))],), of=of)
    return Example((batch,), of=of)
