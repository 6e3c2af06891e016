"""A checkpoint is read with care, and held against the plan, before Lightning loads it."""

import pickle

import lightning.pytorch as pl
import torch

from lockstep.plan import Plan
from lockstep.refusal import refuse, require


def check_checkpoint(plan: Plan, module: pl.LightningModule) -> None:
    """Refuse a file that is no checkpoint of this net, or that this plan could not train on from.

    Only tensors and plain values are loaded: a file that would run code is refused.
    """
    path = plan.ckpt_path
    another = "the path of a whole .ckpt file that this project wrote"
    try:
        checkpoint = torch.load(str(path), map_location="cpu", weights_only=True)
        saved, epoch, optimizers = (checkpoint[key] for key in ("state_dict", "epoch", "optimizer_states"))
    except (RuntimeError, OSError, EOFError, KeyError, TypeError, pickle.UnpicklingError) as error:
        raise refuse("ckpt_path", path, f"it is no checkpoint ({type(error).__name__})", another) from None
    wanted = {key: tensor.shape for key, tensor in module.state_dict().items()}
    fits = wanted == {key: tensor.shape for key, tensor in saved.items()}
    require(fits, "ckpt_path", path, f"it holds another net than model={plan.model.name} with its options", another)
    if plan.train:
        done = epoch + 1
        why = f"it has trained for {done} epochs already"
        require(
            done < plan.max_epochs, "max_epochs", plan.max_epochs, f"{path}: {why}", f"max_epochs={done + 1}, or more"
        )
        numbers = {"lr", "betas"} if plan.optimizer.name != "sgd" else {"lr", "momentum"}
        same = numbers <= optimizers[0]["param_groups"][0].keys()
        why = "the checkpoint holds the state of another optimizer"
        require(same, "optimizer", plan.optimizer.name, why, "optimizer=adam, adamw or sgd, as it was trained with")
