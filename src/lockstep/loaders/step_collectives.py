"""Collectives in a module's evaluation step: every rank has to take part in them.

A rank without samples in a batch skips the step, so that nothing is counted twice; the others would wait for it.
"""

import ast
from collections.abc import Sequence
from typing import Any

from lockstep.config_error import require
from lockstep.loaders.map_loader import MapLoader
from lockstep.loaders.rank_loader import RankLoader
from lockstep.targets.source_code import tree_of

CALLS = ("all_gather", "all_gather_object", "all_reduce", "barrier", "broadcast_object_list")


def require_samples(module: Any, step: str, data: str, loaders: Sequence[RankLoader], ranks: int) -> None:
    """Reject batches of fewer samples than ranks if the step calls a collective; of streams the sizes are unknown.

    Raises:
        ConfigError: names the data, the step and the call.
    """
    least = min((loader.smallest_batch for loader in loaders if isinstance(loader, MapLoader)), default=ranks)
    call = collective_in(type(module), step) if least < ranks else None
    name = f"{type(module).__name__}.{step}"
    reason = f"a batch for {name} has samples for {least} of {ranks} ranks, "
    reason += f"and it calls {call}, in which the others take no part"
    require(call is None, "data", data, reason, "a batch size that leaves a sample for each rank in the last batch")


def collective_in(kind: type, method: str, seen: frozenset[str] = frozenset()) -> str | None:
    """Return the first collective that a method calls, itself or by other methods of its class, or None."""
    function: Any = getattr(kind, method, None)
    is_library = getattr(function, "__module__", "torch").partition(".")[0] in ("lightning", "torch")
    tree = None if is_library or method in seen else tree_of(function)
    if tree is None:
        return None
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    attributes = [call for call in calls if isinstance(call, ast.Attribute)]
    direct = (call.attr for call in attributes if call.attr in CALLS)
    methods = (call.attr for call in attributes if ast.unparse(call.value) == "self")
    nested = (collective_in(kind, name, seen | {method}) for name in methods)
    return next(direct, None) or next(filter(None, nested), None)
