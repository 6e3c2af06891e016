"""`compile=true`: torch.compile of the nets that a module calls, in place: names stay the same.

A graph is compiled for each shape of a batch: the kernels depend on the batch alone, and resumed runs compute the same
bits. `dynamic`: one graph for any shape, if shapes vary. Random numbers are those without compiling.
"""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from lockstep.base.config_error import ConfigError, config_error, errors_as, shorten
from lockstep.base.private_api.torch import compile_error_class, set_recompile_limit
from lockstep.base.progress import notice
from lockstep.plan.plan import Plan

SHAPES = 8  # shapes of a batch for which a net is compiled; batches of others are computed without compiling


def compile_nets(plan: Plan, rank: int, module: Any) -> None:
    """Compile what the steps of a LightningModule call."""
    torch.compiler.reset()  # an earlier run of this process counts its shapes, too
    options: dict[str, Any] = {"dynamic": plan.compile == "dynamic", "options": {"fallback_random": True}}
    parts: list[Any] = [*_called(module)]
    if plan.strategy.shards_weights(plan):  # FSDP gathers weights by hooks, around what can be compiled
        from torch.distributed.fsdp import FSDPModule

        parts = [part for part in module.modules() if isinstance(part, FSDPModule)]
        for part in parts:
            part.forward = torch.compile(part.forward, **options)
    else:
        for part in parts:
            part.compile(**options)
    set_recompile_limit(SHAPES * len(parts))  # parts of one class share it
    silence_compiler()
    if rank == 0:
        print("compiling: the first batch of each shape takes some seconds", flush=True)


def silence_compiler() -> None:
    """Keep torch.compile from warning of a missing GPU and of what it does not compile in a net."""
    for name in ("torch.utils.cpp_extension", "torch._dynamo.variables"):
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("torch._dynamo.convert_frame").addFilter(_shorten_warning)


def compile_errors(plan: Plan) -> AbstractContextManager[None]:
    """Raise a ConfigError if torch cannot compile the net."""

    def convert(error: Exception) -> ConfigError | None:
        if not isinstance(error, compile_error_class()):
            return None
        reason = f"torch cannot compile the net ({shorten(str(error).strip().splitlines()[0])})"
        return config_error("compile", plan.compile, reason, "compile=false")

    return errors_as(convert)


def _called(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the children with parameters; of a ModuleList its items, which are called one by one."""
    for child in module.children():
        if next(child.parameters(), None) is None:
            continue
        if type(child).forward is nn.Module.forward:
            yield from _called(child)
        else:
            yield child


def _shorten_warning(record: logging.LogRecord) -> bool:
    """Say in one line that a net meets too many shapes; return whether to log a record."""
    if "recompile_limit" not in record.getMessage():
        return True
    notice(f"compile=true: batches have more than {SHAPES} shapes, and others are not compiled; write compile=dynamic")
    return False
