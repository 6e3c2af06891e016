"""Collectives of a module's own in the step of an evaluation, in which every rank has to take part.

A rank without samples in a batch leaves the step out, so that nothing is counted twice: the others would wait for it.
"""

import ast
from collections.abc import Sequence
from typing import Any

from lockstep.config_error import require
from lockstep.loaders.rank_loader import RankLoader
from lockstep.loaders.user_loaders import MapLoader
from lockstep.targets.source_code import tree_of

CALLS = ("all_gather", "all_gather_object", "all_reduce", "barrier", "broadcast_object_list")


def require_samples(module: Any, step: str, data: str, loaders: Sequence[RankLoader], ranks: int) -> None:
    """Refuse batches of fewer samples than ranks where the step calls a collective. Of streams nobody knows them.

    Raises:
        ConfigError: names the data, the step and the call.
    """
    least = min((own.smallest_batch for own in loaders if isinstance(own, MapLoader)), default=ranks)
    called = collective_in(type(module), step) if least < ranks else None
    name = f"{type(module).__name__}.{step}"
    reason = f"a batch for {name} has samples for {least} of {ranks} ranks, "
    reason += f"and it calls {called}, in which the others take no part"
    require(called is None, "data", data, reason, "a batch size that leaves a sample for each rank in the last batch")


def collective_in(kind: type, method: str, seen: frozenset[str] = frozenset()) -> str | None:
    """Return the first collective that a method calls, itself or by other methods of its class, or None."""
    defined: Any = getattr(kind, method, None)
    if getattr(defined, "__module__", "torch").partition(".")[0] in ("lightning", "torch"):
        return None
    if (tree := tree_of(defined)) is None:
        return None
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = [own.attr for own in called if isinstance(own, ast.Attribute)]
    if found := next((name for name in names if name in CALLS), None):
        return found
    seen = seen | {method}
    theirs = [own.attr for own in called if isinstance(own, ast.Attribute) and ast.unparse(own.value) == "self"]
    for name in theirs:
        if name not in seen and (found := collective_in(kind, name, seen)):
            return found
    return None
