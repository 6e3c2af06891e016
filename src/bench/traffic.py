"""The collectives of a training step: what torch.distributed is given, and what follows from the sizes of the net."""

from collections import defaultdict
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from lockstep import engine
from lockstep.base.private_api.torch import TorchDispatchMode
from lockstep.base.structures import tensors_in
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan

Traffic = dict[str, tuple[int, int]]
"""Calls and bytes by collective. Bytes are of full tensors: what is summed, sent, or gathered from all ranks."""

KINDS = {
    **{"allreduce_": "all-reduce", "all_reduce": "all-reduce", "broadcast_": "broadcast"},
    **{"_allgather_base_": "all-gather", "_reduce_scatter_base_": "reduce-scatter", "send": "send", "recv_": "receive"},
}
"""Names of collectives by those of torch's operators."""
NO_MESSAGES = ("wait_tensor", "_wrap_tensor_autograd")


class CountedCollectives(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what this rank calls in each step; DDP's buckets and the sums of DTensors are operators of torch, too.

    steps: the traffic up to the end of each optimizer step, from the end of the one before.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps: list[Traffic] = []
        self.counts: dict[str, list[int]] = defaultdict(list)
        register_optimizer_step_post_hook(self.end_step)

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        namespace, name, *_ = str(function).split(".")
        if namespace in ("c10d", "_c10d_functional") and name not in NO_MESSAGES:
            kind = KINDS.get(name, name)
            tensors = tensors_in(arguments[1 if kind == "reduce-scatter" else 0])
            self.counts[kind].append(sum(tensor.nbytes for tensor in tensors))
        return function(*arguments, **(options or {}))

    def end_step(self, *_: object) -> None:
        self.steps.append({kind: (len(sizes), sum(sizes)) for kind, sizes in sorted(self.counts.items())})
        self.counts.clear()


def run(plan: Plan, context: RankContext) -> Traffic:
    """On a rank: train, and return the traffic of the last step."""
    collectives = CountedCollectives()
    with collectives:
        engine.run(plan, context)
    return collectives.steps[-1]


CHARACTERS = 58  # of the text that comes with the package


def expected_traffic(
    ranks: int, width: int, layers: int, length: int, samples: int, micro_batches: int = 4
) -> dict[str, Traffic]:
    """Return the traffic of a step of `model=transformer` in float32, of the first rank, by strategy.

    Gradients of less than 1 MiB are one bucket, more are two. Sharded strategies add the squared norms of parameters;
    fsdp what ranks have used.
    """
    block = 12 * width**2 + 13 * width  # four layers of attention, two of four times the width, two norms
    embedding, outer, norm = CHARACTERS * width, length * width, 2 * width
    weights = 4 * (layers * block + embedding + outer + norm)
    activation = 4 * samples * length * width
    buckets, norms = 1 + (weights > 2**20), 8 * (16 * layers + 4)
    divided, root = 4 * (layers * block + norm), 4 * (embedding + outer)  # tied and embedded are gathered once, the
    groups = layers + 1  # others for the forward and for the backward
    return {
        "ddp": {"all-reduce": (buckets, weights)},
        "zero1": {"all-reduce": (buckets, weights), "broadcast": (ranks, weights)},
        "fsdp": {
            "all-gather": (2 * groups + 1, 2 * divided + root),
            "all-reduce": (2, norms + 16),
            "reduce-scatter": (groups + 1, weights),
        },
        "tensor_parallel": {"all-reduce": (6 * layers + 1, 6 * layers * activation + norms)},
        "pipeline": {
            "all-reduce": (2, 4 * embedding + norms),
            "broadcast": (1, 4 * samples * length * CHARACTERS),
            "receive": (micro_batches, activation),
            "send": (micro_batches, activation),
        },
    }
