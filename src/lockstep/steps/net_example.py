"""A LightningModule's forward, called to be shown: with its own example, else with a sample of its first batch."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from lockstep.config_error import ConfigError
from lockstep.loaders.batch_slices import part_of
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
    own = module.example_input_array
    if own is not None:
        example = _of_array(transfer(own))
    else:
        example = _example(module, batch) if overrides(module, "forward") else Example()
    if plan.world_size > 1 and collective_in(type(module), "forward"):
        example = replace(example, waits=True)
    with plan.strategy.tensors.full_weights(module):
        show_net(plan, loggers, module, example, device)


def _of_array(own: Any) -> Example:
    """Return the arguments of forward in `example_input_array`, in the forms that Lightning takes."""
    of = "its example_input_array"
    if isinstance(own, Mapping):
        return Example((), own, of)
    return Example(own if isinstance(own, tuple) else (own,), of=of)


def _example(module: Any, batch: Any) -> Example:
    """Return as much of a batch (inputs, targets) as `forward` takes; of a mapping what it has parameters for."""
    try:
        batch, of = part_of(batch, slice(1)), ONE_SAMPLE
    except ConfigError:
        of = "a batch"
    parameters = [*inspect.signature(module.forward).parameters.values()]
    needed = [own for own in parameters if own.default is own.empty and own.kind is own.POSITIONAL_OR_KEYWORD]
    if isinstance(batch, Mapping) and not (len(needed) == 1 and needed[0].name not in batch):
        takes_all = any(own.kind is own.VAR_KEYWORD for own in parameters)
        names = {own.name for own in parameters}
        return Example((), {key: own for key, own in batch.items() if takes_all or key in names}, of)
    if isinstance(batch, list | tuple):
        return Example((*batch[: max(1, len(needed))],), of=of)
    return Example((batch,), of=of)
