"""A LightningModule's forward, called to be shown: with its own example, else with a sample of its first batch."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from lockstep.config_error import ConfigError
from lockstep.loaders.batch_slices import slice_batch
from lockstep.loaders.step_collectives import collective_in
from lockstep.loggers import Loggers
from lockstep.monitor.net import ONE_SAMPLE, Example, show_net
from lockstep.plan import Plan
from lockstep.targets.kinds import overrides


def show_module(
    plan: Plan, loggers: Loggers, module: Any, batch: Any, device: torch.device, transfer: Callable[[Any], Any]
) -> None:
    """Show the module by its first batch. To be called by every rank.

    Args:
        transfer: brings a batch to the device, in the plan's numbers.
    """
    array = module.example_input_array
    if array is not None:
        array, of = transfer(array), "its example_input_array"
        is_mapping, listed = isinstance(array, Mapping), array if isinstance(array, tuple) else (array,)
        example = Example((), array, of) if is_mapping else Example(listed, of=of)
    else:
        example = _example(module, batch) if overrides(module, "forward") else Example()
    if plan.world_size > 1 and collective_in(type(module), "forward"):
        example = replace(example, waits=True)
    with plan.strategy.tensors.full_weights(module):
        show_net(plan, loggers, module, example, device)


def _example(module: Any, batch: Any) -> Example:
    """Return as much of a batch (inputs, targets) as `forward` takes; of a mapping what it has parameters for."""
    try:
        batch, of = slice_batch(batch, slice(1)), ONE_SAMPLE
    except ConfigError:
        of = "a batch"
    parameters = [*inspect.signature(module.forward).parameters.values()]
    needed = [each for each in parameters if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
    if isinstance(batch, Mapping) and not (len(needed) == 1 and needed[0].name not in batch):
        takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters)
        names = {each.name for each in parameters}
        return Example((), {key: value for key, value in batch.items() if takes_all or key in names}, of)
    if isinstance(batch, list | tuple):
        return Example((*batch[: max(1, len(needed))],), of=of)
    return Example((batch,), of=of)
