"""Checkpoints that either engine reads under any strategy: what they hold, read with care and held against the plan.

The keys are Lightning's: `state_dict` (named `net.…`, never `module.…`), `epoch` (from 0), `global_step`,
`optimizer_states`, `lr_schedulers`. What only Lightning has (its loops and callbacks), only Lightning reads.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.plan import Plan
from lockstep.record import UNREADABLE
from lockstep.refusal import refuse, require

PREFIX = "net."
"""In front of each name: in Lightning's engine the net is an attribute of the LightningModule."""


def state_of(net: nn.Module) -> dict[str, Tensor]:
    """The net's parameters and buffers by the names that checkpoints give them."""
    return {PREFIX + name: tensor for name, tensor in net.state_dict().items()}


def own_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The other way: a checkpoint's parameters and buffers by the net's own names."""
    return {name.removeprefix(PREFIX): tensor for name, tensor in state.items()}


def net_state(path: Path) -> dict[str, Tensor]:
    """The parameters and buffers in a checkpoint file, by the net's own names."""
    return own_names(torch.load(path, map_location="cpu", weights_only=True)["state_dict"])


def read_checkpoint(plan: Plan, net: nn.Module) -> Mapping[str, Any]:
    """Refuse a file that is no checkpoint of this net, or that this plan could not train on from.

    Only tensors and plain values are loaded: a file that would run code is refused.
    """
    path = plan.ckpt_path
    another = "the path of a whole .ckpt file that this project wrote"
    try:
        checkpoint: Mapping[str, Any] = torch.load(str(path), map_location="cpu", weights_only=True)
        saved, epoch, optimizers = (checkpoint[key] for key in ("state_dict", "epoch", "optimizer_states"))
    except UNREADABLE as error:
        raise refuse("ckpt_path", path, f"it is no checkpoint ({type(error).__name__})", another) from None
    wanted = {key: tensor.shape for key, tensor in state_of(net).items()}
    fits = wanted == {key: tensor.shape for key, tensor in saved.items()}
    require(fits, "ckpt_path", path, f"it holds another net than model={plan.model.name} with its options", another)
    if plan.train:
        done = epoch + 1
        why = f"{path}: it has trained for {done} epochs already"
        require(done < plan.max_epochs, "max_epochs", plan.max_epochs, why, f"max_epochs={done + 1}, or more")
        group = optimizers[0]["param_groups"][0]
        kind = "sgd" if "momentum" in group else "adamw" if group.get("decoupled_weight_decay") else "adam"
        same = kind == plan.optimizer.name
        why = "the checkpoint holds the state of another optimizer"
        require(same, "optimizer", plan.optimizer.name, why, f"optimizer={kind}")
        spared = len(optimizers[0]["param_groups"]) > 1
        same = spared == plan.optimizer.spares_bias_and_norm
        key, value = "optimizer.decay_bias_and_norm", plan.optimizer.decay_bias_and_norm
        why = f"the checkpoint's weight decay {'spares' if spared else 'does not spare'} biases and norm layers"
        require(same, key, value, why, f"{key}={str(not spared).lower()}, with the weight decay of that run")
    return checkpoint
