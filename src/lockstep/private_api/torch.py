"""Private names of torch. Where one is gone, a public way replaces it; each says at which cost."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import Reducer, Store  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

BATCHNORM: tuple[type[nn.BatchNorm1d], ...]
"""All kinds of BatchNorm. Without the private name: those that torch names, and what is derived from them."""

DROPOUT: tuple[type[nn.Dropout], ...]
"""All kinds of dropout, likewise."""

try:
    from torch.nn.modules.batchnorm import _BatchNorm

    BATCHNORM = (_BatchNorm,)  # type: ignore[assignment]
except ImportError:
    BATCHNORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)  # type: ignore[assignment]

try:
    from torch.nn.modules.dropout import _DropoutNd

    DROPOUT = (_DropoutNd,)  # type: ignore[assignment]
except ImportError:
    DROPOUT = (  # type: ignore[assignment]
        *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout),
    )


def norms(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The 2-norm of each tensor. Without the private name: one call a tensor, slower, the same bits."""
    together = getattr(torch, "_foreach_norm", None)
    if together is None or not tensors:
        return [torch.linalg.vector_norm(tensor) for tensor in tensors]
    normed: Sequence[Tensor] = together(tensors)
    return normed


def add_points(writer: Any, values: Mapping[str, float], step: int, at: float) -> None:
    """A point on each curve as one event of a SummaryWriter, also of one that is closed and opens a further file.

    Without the private name: an event for each point, which costs as much each.
    """
    from tensorboard.compat.proto.summary_pb2 import Summary

    if not hasattr(writer, "_get_file_writer"):
        for tag, value in values.items():
            writer.add_scalar(tag, value, step, walltime=at)
        return
    points = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
    writer._get_file_writer().add_summary(Summary(value=points), step, at)


def default_store() -> Store:
    """The store of the default process group.

    Raises:
        RuntimeError: this version of torch has no such name, and there is no public way to the store.
    """
    get = getattr(torch.distributed.distributed_c10d, "_get_default_store", None)
    if get is None:
        raise RuntimeError(f"torch {torch.__version__} gives no access to a process group's store")
    store: Store = get()
    return store


class LastToFirst(DistributedDataParallel):
    """DistributedDataParallel that hands its reducer the parameters from the last to the first, if it can."""

    def _build_params_for_reducer(self) -> tuple[list[nn.Parameter], list[bool]]:
        parameters, sparse = super()._build_params_for_reducer()  # type: ignore[no-untyped-call]
        return (parameters[::-1], sparse[::-1]) if can_fix_buckets() else (parameters, sparse)


def can_fix_buckets() -> bool:
    """Whether this version has what `fix_buckets` needs. Without: see `FixedBucketDDP`."""
    return (
        hasattr(DistributedDataParallel, "_build_params_for_reducer")
        and hasattr(Reducer, "_push_all_rebuilt_params")
        and hasattr(Reducer, "_rebuild_buckets")
    )


def fix_buckets(ddp: LastToFirst) -> None:
    """Lay out the buckets as if all gradients had come in the order of the parameters; torch does it only once."""
    ddp.reducer._push_all_rebuilt_params()
    ddp.reducer._rebuild_buckets()


def prepare_for_backward(ddp: DistributedDataParallel, loss: Tensor) -> None:
    """Tell DDP that a backward pass from this loss comes, without a forward of its own.

    What the loss does not depend on gets no gradient. Not where ranks keep their gradients for themselves.
    """
    if not torch.is_grad_enabled() or not ddp.require_backward_grad_sync:
        ddp.require_forward_param_sync = False
        return
    ddp.require_forward_param_sync = True
    ddp.reducer.prepare_for_backward([loss] if ddp.find_unused_parameters else [])
