"""Whether what lies in a checkpoint has the form that this project writes: types, shapes, and counts that can be.

A file may unpack and still hold anything. What has another form is told before anyone trains on from it.
"""

import math
import random
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.batch_math import window_count
from lockstep.checkpoint.content import OWN, SCALER, Content, RankState, state_of
from lockstep.checkpoint.identity import digest_of
from lockstep.fingerprint import buffers_of
from lockstep.optimizers import create_optimizer, create_scheduler
from lockstep.plan import Plan
from lockstep.record_file import Mark
from lockstep.task import SAMPLES

SUMS = ("epoch", "curve", "window")
"""What a rank has of the epoch, since the last point of the curve, and of the step under way."""


class WrongForm(ValueError):
    """What of a checkpoint cannot be as it is."""


def require_weights(checkpoint: Mapping[str, Any]) -> None:
    """Raise WrongForm unless the checkpoint holds a net's state by name."""
    state = checkpoint["state_dict"]
    _hold(isinstance(state, Mapping) and all(_dense(value) for value in state.values()), "state_dict")


def fits(net: nn.Module, checkpoint: Mapping[str, Any]) -> bool:
    """Whether the checkpoint's weights are those of such a net, by names, shapes and kind of number."""
    wanted, own = state_of(net), checkpoint["state_dict"]
    return wanted.keys() == own.keys() and all(_like(tensor, own[name]) for name, tensor in wanted.items())


def require_names(content: Content) -> str:
    """The names of the sums that it holds; raises WrongForm where they are none."""
    names = content.sum_names
    _hold(isinstance(names, list) and all(isinstance(name, str) and name.isprintable() for name in names), "sum_names")
    return ", ".join(names) or "none"


def require_content(plan: Plan, content: Content) -> None:
    """Raise WrongForm unless the place in training is one of this plan, and what is beside it can be gone on from."""
    at = content.position
    _hold(all(_count(value) for value in (at.epochs, at.batch, at.steps)), "position")
    windows = window_count(plan.data.train_samples, plan.batch_size, plan.accumulate_grad_batches, plan.drop_last)
    steps = at.epochs * windows + at.batch // plan.accumulate_grad_batches
    skipping = plan.precision == "16-mixed"  # the scaler leaves out steps that overflow
    _hold(at.batch < plan.epoch_batches and (at.steps == steps or (skipping and at.steps <= steps)), "position")
    _require_mark(content.mark)
    _hold(isinstance(content.results, Mapping) and all(map(_number, content.results.values())), "results")
    _hold(all(isinstance(name, str) for name in content.results), "results")
    best = content.best
    pair = isinstance(best, tuple | list) and len(best) == 2
    _hold(best is None or (pair and isinstance(best[0], str) and _number(best[1])), "best")
    _hold(isinstance(content.best_yet, bool), "best_yet")
    _hold(len(content.ranks) > 0, "ranks")
    for state in content.ranks:
        _require_sums(plan, state)
        _require_random(state)
        for what, own in (("gradients", state.gradients), ("buffers", state.buffers)):
            _hold(isinstance(own, Mapping) and all(map(_dense, own.values())), what)


def _require_mark(mark: Mark) -> None:
    _hold(_count(mark.lines), "record")
    _hold(mark.size is None or _count(mark.size), "record_size")
    _hold(mark.sha256 is None or isinstance(mark.sha256, str), "record_sha256")


def require_comparable(checkpoint: Mapping[str, Any], leaves: Iterable[tuple[str, Any]]) -> None:
    """Raise WrongForm, or what else its content leads to, unless another's can be held against it, of whichever plan.

    Args:
        leaves: all of its values, by their keys.
    """
    require_weights(checkpoint)
    _hold(all(isinstance(name, str) for name in checkpoint["state_dict"]), "state_dict")
    for key, value in leaves:
        _hold(not isinstance(value, Tensor) or _dense(value), key)
    section = checkpoint.get(OWN, {})
    _hold(isinstance(section, Mapping), OWN)
    position = section.get("position", {})
    _hold(isinstance(position, Mapping) and all(map(_count, position.values())), "position")
    _require_mark(Mark(section.get("record", 0), section.get("record_size"), section.get("record_sha256")))
    identity = section.get("identity", {})
    _hold(isinstance(identity, Mapping) and bool(digest_of(identity)), "identity")


def _require_sums(plan: Plan, state: RankState) -> None:
    sums = state.sums
    _hold(isinstance(sums, Mapping) and {*SUMS, "ids"} == sums.keys(), "sums")
    _hold(all(_dense(sums[name]) and sums[name].shape == (len(plan.task.sums),) for name in SUMS), "sums")
    _hold(all(sums[name].dtype == torch.float64 for name in SUMS), "sums")
    ids = sums["ids"]
    _hold(_dense(ids) and ids.shape == () and ids.dtype == torch.int64, "sums")
    for name in SUMS:
        count = float(sums[name][SAMPLES])
        _hold(count.is_integer() and 0 <= count < 2**53, "sums")
    _hold(sums["epoch"][SAMPLES].item() <= plan.data.train_samples, "sums")


def _require_random(state: RankState) -> None:
    """Each generator's state is given to a fresh one, which raises what it cannot be set to."""
    if state.random == {}:
        return
    own = state.random
    version, internal, gauss = own["python"]
    random.Random().setstate((version, tuple(internal), gauss))
    kind, keys, position, has_gauss, cached = own["numpy"]
    _hold(_dense(keys) and keys.dtype == torch.int64 and keys.shape == (624,), "random")
    in_range = bool(((keys >= 0) & (keys < 2**32)).all()) and _count(position) and position <= 624
    _hold(kind == "MT19937" and in_range and has_gauss in (0, 1) and _number(cached), "random")
    np.random.RandomState().set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.Generator().set_state(own["torch"])
    _hold(all(_dense(one) and one.dtype == torch.uint8 and one.dim() == 1 for one in own["cuda"]), "random")


def require_state(plan: Plan, net: nn.Module, checkpoint: Mapping[str, Any], content: Content) -> None:
    """Raise WrongForm unless optimizer, schedule, gradients and buffers are such as this plan makes for this net."""
    parameters, buffers = dict(net.named_parameters()), buffers_of(net)
    for state in content.ranks:
        for what, wanted, held in (("gradients", parameters, state.gradients), ("buffers", buffers, state.buffers)):
            _hold(held.keys() <= wanted.keys(), what)
            _hold(all(_like(wanted[name], own) for name, own in held.items()), what)
    _require_optimizer(plan, net, checkpoint["optimizer_states"], content.position.steps)
    _require_schedule(plan, net, checkpoint["lr_schedulers"], content.position.steps)
    scaler = checkpoint.get(SCALER, {})
    _hold(isinstance(scaler, Mapping) and all(_finite(value) for value in scaler.values()), SCALER)


def _require_optimizer(plan: Plan, net: nn.Module, states: Any, steps: int) -> None:
    what = "optimizer_states"
    _hold(isinstance(states, list) and len(states) == 1 and isinstance(states[0], Mapping), what)
    groups, entries = states[0]["param_groups"], states[0]["state"]
    fresh, taking = create_optimizer(plan.optimizer, net), create_optimizer(plan.optimizer, net)
    wanted = fresh.state_dict()["param_groups"]
    _hold(_alike([group["params"] for group in wanted], [group["params"] for group in groups], exact=True), what)
    taking.load_state_dict({"param_groups": groups, "state": {}})  # torch knows what an older one of it wrote
    for own, taken in zip(wanted, taking.state_dict()["param_groups"], strict=True):
        _hold(own.keys() <= taken.keys() and _finite(taken["lr"]) and taken["lr"] >= 0, what)
        _hold(all(_alike(own[key], taken[key], exact=True) for key in own if key not in ("lr", "params")), what)
    parameters = [parameter for group in fresh.param_groups for parameter in group["params"]]
    adam = plan.optimizer.name != "sgd"
    names = {"step", "exp_avg", "exp_avg_sq"} if adam else {"momentum_buffer"}
    keeps = adam or getattr(plan.optimizer, "momentum", 0) > 0
    _hold(isinstance(entries, Mapping) and entries.keys() <= set(range(len(parameters))), what)
    stepped = steps > 0 and plan.precision != "16-mixed"  # which may have left out all of them
    _hold(not (keeps and stepped) or len(entries) == len(parameters), what)
    for index, entry in entries.items():
        _hold(isinstance(entry, Mapping) and entry.keys() <= names, what)
        _hold(not keeps or entry.keys() == names, what)
        for name, value in entry.items():
            _hold(_step(value, steps) if name == "step" else _moment(parameters[index], value, keeps), what)


def _require_schedule(plan: Plan, net: nn.Module, states: Any, steps: int) -> None:
    what = "lr_schedulers"
    fresh = create_scheduler(plan.scheduler, create_optimizer(plan.optimizer, net), plan.total_steps)
    _hold(isinstance(states, list) and len(states) == (0 if fresh is None else 1), what)
    if fresh is None:
        return
    wanted, own = fresh.state_dict(), states[0]
    _hold(isinstance(own, Mapping) and wanted.keys() <= own.keys(), what)
    _hold(all(_alike(wanted[key], own[key]) for key in wanted), what)
    _hold(_count(own["last_epoch"]) and own["last_epoch"] <= steps, what)
    _hold(plan.precision == "16-mixed" or own["last_epoch"] == steps, what)
    _hold(_alike(wanted["base_lrs"], own["base_lrs"], exact=True), what)


def _alike(wanted: Any, own: Any, exact: bool = False) -> bool:
    """Whether two plain values have the same type and, throughout, the same length; numbers are finite, or the same."""
    if isinstance(wanted, list | tuple):
        both = isinstance(own, list | tuple) and len(own) == len(wanted)
        return both and all(_alike(one, other, exact) for one, other in zip(wanted, own, strict=True))
    if type(wanted) in (int, float):
        return _finite(own) and (not exact or bool(own == wanted))
    return type(own) is type(wanted) and (not exact or bool(own == wanted))


def _step(value: Any, steps: int) -> bool:
    single = _dense(value) and value.shape == () and value.is_floating_point()
    return single and 0 <= value.item() <= steps


def _moment(parameter: Tensor, value: Any, needed: bool) -> bool:
    return (value is None and not needed) or _like(parameter, value)


def _like(wanted: Tensor, own: Any) -> bool:
    """Whether it is a tensor of the same shape, of real numbers or of whole ones as that is."""
    return _dense(own) and own.shape == wanted.shape and own.is_floating_point() == wanted.is_floating_point()


def _dense(value: Any) -> bool:
    plain = isinstance(value, Tensor) and value.layout == torch.strided and not value.is_complex()
    return plain and not value.is_quantized and value.device.type == "cpu"


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _finite(value: Any) -> bool:
    return _number(value) and math.isfinite(value)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _hold(holds: bool, what: str) -> None:
    if not holds:
        raise WrongForm(what)


def unfit(error: Exception) -> str:
    """Why a checkpoint is none, as a sentence has it."""
    what = f"what it has as {error} cannot be" if isinstance(error, WrongForm) else type(error).__name__
    return f"it is no checkpoint ({what})"
