"""The content of a checkpoint beside weights, optimizer, schedule and scaler: the position on every rank."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.plan.plan import Plan

SECTION = "lockstep"  # the key of the Content in a checkpoint
COMPILED = "_orig_mod."  # what torch.compile of a layer adds to the names below it


@dataclass
class Progress:
    """A position in training: complete epochs, global batches of the next epoch, optimizer steps in all."""

    epochs: int = 0
    batch: int = 0
    steps: int = 0

    @property
    def begun(self) -> int:
        """Return the number of epochs that have begun."""
        return self.epochs + bool(self.batch)


SavedRankState = Mapping[str, Any]
"""`random`: the state of each generator; `sums`: of metrics and of the record; `gradients`: of an unfinished optimizer
step, by parameter; `buffers`: of ranks above 0; `module`: what was logged and measured in the current epoch.
"""

Content = Mapping[str, Any]
"""What a checkpoint holds under SECTION, in tensors and plain values, since nothing else is loaded.

`identity`, `plan` (`saved_plan`): of its plan; `position`: the fields of Progress; `record`: the lines that it counts;
`results`: the latest metrics; `best`: the monitored metric, its best value, negative if more is better, and its epoch;
`best_yet`: whether this is the best; `ranks`: a SavedRankState for each share of a batch; `ended`: by a callback,
early; `state_dict`: the one that training goes on with, if hooks at the end of fit have replaced the weights.
"""


def saved_plan(plan: Plan) -> dict[str, Any]:
    """Return what `lockstep.load` needs of a plan to create its module and data, in plain values."""
    return {key: getattr(plan, key) for key in ("seed", "precision", "test")} | {
        key: asdict(getattr(plan, key)) for key in ("model", "data")
    }


def state_of_rank(content: Content, rank: int, world_size: int, sharded: bool = False) -> SavedRankState:
    """Return the state that a rank resumes with. In another world rank 0 takes all sums.

    There, and if they are `sharded`, each rank takes the mean of gradients over ranks, which is the global batch's.
    """
    ranks = content["ranks"]
    if len(ranks) == world_size:
        return {**ranks[rank], "gradients": _mean_gradients(ranks)} if sharded else ranks[rank]
    totals = {name: _stacked(ranks, "sums", name).sum(0) for name in ranks[0]["sums"]}
    sums = totals if rank == 0 else {name: torch.zeros_like(total) for name, total in totals.items()}
    return {"random": {}, "sums": sums, "gradients": _mean_gradients(ranks), "buffers": {}}


def _mean_gradients(ranks: Sequence[SavedRankState]) -> Mapping[str, Tensor]:
    """Return the mean gradient over ranks by name; equal ones, as shards have, are not rounded."""
    names = dict.fromkeys(name for state in ranks for name in state["gradients"])
    stacks = {name: _stacked(ranks, "gradients", name) for name in names}
    return {name: stack[0] if (stack == stack[0]).all() else stack.mean(0) for name, stack in stacks.items()}


def _stacked(ranks: Sequence[SavedRankState], kind: str, name: str) -> Tensor:
    """Return a tensor of all ranks, (ranks, …); zeros for a rank without one, whose share of a batch was empty."""
    tensors = [state[kind].get(name) for state in ranks]
    like = next(tensor for tensor in tensors if tensor is not None)
    return torch.stack([torch.zeros_like(like) if tensor is None else tensor for tensor in tensors])


def before_fit_end(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint with the weights that training goes on with, in place of those that fit has left."""
    return {**checkpoint, "state_dict": checkpoint.get(SECTION, {}).get("state_dict", checkpoint["state_dict"])}


def named_as_in(net: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights by their names in a net, whichever layers of it torch.compile has wrapped, now or in the run."""
    names = {name.replace(COMPILED, ""): name for name in net.state_dict()}
    return {names.get(name.replace(COMPILED, ""), name): tensor for name, tensor in weights.items()}
