"""`lockstep.load`: the trained net of a run, or its LightningModule, in evaluation mode."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lockstep import data
from lockstep.checkpoint.content import SECTION, named_as_in, net_weights
from lockstep.checkpoint.files import BEST, FOLDER, LAST, DamagedCheckpoint, read_checkpoint
from lockstep.config_error import ConfigError, config_error, shorten
from lockstep.data import digits
from lockstep.data.tensors import Batch, Split, as_float
from lockstep.files import absolute, short_path
from lockstep.plan import Plan
from lockstep.precision import MIXED, convert, default_dtype, dtype_of
from lockstep.random_state import preserve_generators
from lockstep.run_files import CONFIG
from lockstep.schemas import MNIST, Digits, Loaders
from lockstep.schemas.engine import ENGINES
from lockstep.schemas.plan_json import from_json
from lockstep.schemas.target import BuiltIn
from lockstep.session.lightning_module import create_module
from lockstep.session.task import create_net
from lockstep.targets.kinds import overrides

HINT = "the folder of a run, or one of its checkpoints"
UNREADABLE = (LookupError, TypeError, AttributeError, ValueError, AssertionError, ImportError)
"""Errors of reading a plan that another version has written."""


class Preprocessing(nn.Module):
    """Converts inputs (batch, *shape), a tensor or an array: bytes of images are divided by 255 and normalised.

    Real numbers are taken for pixels from 0 to 1 if the data set consists of bytes, and normalised in the same way.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.dtype, self.divides = dtype_of(plan), _divides_bytes(plan)
        self.mean, self.std = 0.0, 1.0
        if isinstance(plan.data, MNIST):
            self.mean, self.std = plan.data.mean, plan.data.std
        elif isinstance(plan.data, Digits):
            self.mean, self.std = digits.MEAN, digits.STD

    def forward(self, inputs: Any) -> Tensor:
        tensor: Tensor = torch.as_tensor(inputs)
        if tensor.is_floating_point():
            return (tensor.to(self.dtype) - self.mean) / self.std
        return as_float(Batch(tensor, tensor), self.dtype, self.mean, self.std).inputs if self.divides else tensor


def _divides_bytes(plan: Plan) -> bool:
    """Whether bytes are divided by 255: not those that a LightningModule gets from a Dataset or from loaders."""
    if not plan.model.lightning or isinstance(plan.data, BuiltIn):
        return True
    if isinstance(plan.data, Loaders) or (plan.data.shape and plan.data.dtype != "uint8"):
        return False
    return plan.data.is_built_in or isinstance(data.load(plan.data, plan.seed, "module").train, Split)


class TrainedNet(nn.Module):
    """A trained net that takes inputs as its data set has them: those of `net` after `preprocessing`."""

    def __init__(self, net: nn.Module, preprocessing: Preprocessing, precision: str) -> None:
        super().__init__()
        self.net, self.preprocessing, self.autocast_dtype = net, preprocessing, MIXED.get(precision)

    def forward(self, inputs: Any) -> Any:
        """Return the outputs of the net, for (batch, *shape) on any device."""
        device = next(self.net.parameters()).device
        inputs = self.preprocessing(inputs).to(device)
        with torch.autocast(device.type, self.autocast_dtype, enabled=self.autocast_dtype is not None):
            return self.net(inputs)


def load(run: str | Path, device: str | torch.device = "cpu") -> Any:
    """Return the trained net of a run in evaluation mode, ready to be called.

    Args:
        run: the folder of a run: its last net, or with `test=best` its best one; or one of its checkpoints.

    Returns:
        A TrainedNet, which takes inputs as the data set has them, (batch, *shape); or, of a run that trained a
        LightningModule, this module, with the weights and what its `on_load_checkpoint` restores.

    Raises:
        ConfigError: there is no such run or checkpoint, or its code has changed.
    """
    return move(restore(*read_run(run)), device)


def read_run(run: str | Path) -> tuple[Plan, Mapping[str, Any]]:
    """Return the plan that trained a net, with `ckpt_path`, and the checkpoint at this path."""
    path = Path(absolute(str(run)))
    if path.is_file():
        return _read(path)
    last = _last_checkpoint(path)
    plan, checkpoint = _read(last)
    return _read(last.with_name(BEST)) if plan.test == "best" else (plan, checkpoint)


def _last_checkpoint(folder: Path) -> Path:
    """Return last.ckpt of a run, or of the first engine of `engine=both`; best.ckpt if it is the only one."""
    runs = (folder, *(folder / engine for engine in ENGINES))
    candidates = [run / FOLDER / name for name in (LAST, BEST) for run in runs]
    last = next((path for path in candidates if path.is_file()), None)
    if last is not None:
        return last
    jobs = sorted(config.parent for config in folder.glob(f"*/{CONFIG}"))
    reason, hint = f"there is no run: {short_path(candidates[0])} is missing", HINT
    if (folder / CONFIG).is_file():
        reason, hint = "this run has saved no checkpoint", "the folder of the run that trained"
    elif jobs:
        reason, hint = f"it is a sweep of {len(jobs)} jobs", f"{short_path(jobs[0])}, for example"
    raise config_error("run", short_path(folder), reason, hint)


def _read(path: Path) -> tuple[Plan, Mapping[str, Any]]:
    try:
        checkpoint = read_checkpoint(path)
        plan: Plan = from_json(checkpoint[SECTION]["plan"])
        return replace(plan, ckpt_path=str(path)), checkpoint
    except DamagedCheckpoint as error:
        reason = str(error)
    except UNREADABLE as error:
        reason = f"it is no checkpoint of this version ({shorten(str(error))})"
        reason = str(error) if isinstance(error, ConfigError) else reason
    raise config_error("run", short_path(path), reason, HINT)


def move(net: Any, device: str | torch.device) -> Any:
    """Return a net on a device, or raise a ConfigError if this machine has no such device."""
    try:
        return net.to(device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].partition(". ")[0].rstrip(".")
        raise config_error("device", str(device), reason, "device=cpu") from None


def restore(plan: Plan, checkpoint: Mapping[str, Any]) -> Any:
    """Return the net of a plan with the weights of a checkpoint, on the CPU; the generators are preserved."""
    with preserve_generators():
        if plan.model.lightning:
            module: Any = create_module(plan.model, plan.seed)  # type: ignore[arg-type]
            if overrides(module, "configure_model"):
                with default_dtype(torch.float32):
                    module.configure_model()
            convert(plan, module)
            module.on_load_checkpoint(checkpoint)
            net, strict = module, module.strict_loading
        else:
            net, strict = create_net(plan, shapes_of(plan)), True
            module = TrainedNet(net, Preprocessing(plan), plan.precision)
    try:
        net.load_state_dict(named_as_in(net, net_weights(checkpoint)), strict=strict)
    except RuntimeError as error:
        differing = " ".join(str(error).partition("\n")[2].split()).rstrip(".")
        reason = f"{plan.model.name} has other weights than it had in this run: {differing}"
        hint = "the code as it was; layers that `setup` adds cannot be loaded"
        raise config_error("run", short_path(str(plan.ckpt_path)), shorten(reason), hint) from None
    return module.eval()


def shapes_of(plan: Plan) -> Any:
    """Return the plan's data, or what it loads, whichever knows the `shape` of a sample and the number of `outputs`."""
    choice = plan.data
    is_computed = isinstance(choice, BuiltIn) and not choice.shape
    return data.load(choice, plan.seed, plan.task.samples) if is_computed else choice
