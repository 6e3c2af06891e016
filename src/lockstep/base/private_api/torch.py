"""Private names of torch, and those that its versions call differently."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed import Store  # type: ignore[attr-defined]
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

BATCHNORM: type[nn.BatchNorm1d] = _BatchNorm  # type: ignore[assignment]
DROPOUT: type[nn.Dropout] = _DropoutNd  # type: ignore[assignment]
"""The base classes of all kinds of BatchNorm and of dropout."""

all_gather_single: Callable[..., Any] = getattr(distributed, "all_gather_single", distributed.all_gather_into_tensor)
reduce_scatter_single: Callable[..., Any] = getattr(
    distributed, "reduce_scatter_single", distributed.reduce_scatter_tensor
)
"""Since torch 2.14; the older names are deprecated since then, with a warning."""


def unobserved(tensor: Tensor) -> AbstractContextManager[Any]:
    """Return a context in which no TorchDispatchMode sees what is computed of a tensor; without it that takes longer.

    A subclass needs the dispatch by which it computes, and is observed.
    """
    is_plain = type(tensor) in (Tensor, nn.Parameter)
    return getattr(torch._C, "_DisableTorchDispatch", nullcontext)() if is_plain else nullcontext()


def has_hooks(tensor: Tensor) -> bool:
    """Whether a hook changes or reads the gradient of a tensor."""
    return bool(tensor._backward_hooks)


def version_of(tensor: Tensor) -> int:
    """Return how often a tensor was changed in place; 0 for those of an evaluation, which do not count it."""
    return 0 if tensor.is_inference() else tensor._version


def norms(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    return torch._foreach_norm([*tensors]) if tensors else ()


def complete_dtensors() -> None:
    """Have `item()` of a DTensor return the number of the full tensor, by a collective, and not of this rank's part.

    And have `weight.data = tensor` write into its shard: torch replaces what nothing computes with.
    """
    from torch.distributed.tensor import DTensor

    data: Any = Tensor.data

    def item(op_call: Any, args: Any, kwargs: Any) -> Any:
        return args[0].full_tensor().item()

    def assign(tensor: Any, value: Any) -> None:
        data.__get__(tensor).copy_(value)

    DTensor._op_dispatcher._custom_op_handlers[torch.ops.aten._local_scalar_dense.default] = item
    DTensor.data = property(data.__get__, assign)  # type: ignore[assignment]


def default_store() -> Store:
    store: Store = torch.distributed.distributed_c10d._get_default_store()
    return store


class LastToFirst(DistributedDataParallel):
    """DistributedDataParallel that gives its reducer the parameters from the last to the first."""

    def _build_params_for_reducer(self) -> tuple[list[nn.Parameter], list[bool]]:
        parameters, sparse = super()._build_params_for_reducer()  # type: ignore[no-untyped-call]
        return parameters[::-1], sparse[::-1]


def fix_buckets(ddp: LastToFirst) -> None:
    """Lay out the buckets as if gradients had become ready in the order of the parameters; torch does it once only."""
    ddp.reducer._push_all_rebuilt_params()
    ddp.reducer._rebuild_buckets()


def set_recompile_limit(limit: int) -> None:
    """Set how often torch.compile compiles a function anew, before it runs it without compiling."""
    from torch._dynamo import config

    config.recompile_limit = limit
