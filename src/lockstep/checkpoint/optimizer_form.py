"""Whether optimizer, schedule, gradients and buffers in a checkpoint are such as a plan makes for a net."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from lockstep.checkpoint.checks import are_alike, check, is_count, is_dense, is_finite, is_like
from lockstep.checkpoint.content import SCALER, Content
from lockstep.optimizers import create_optimizer
from lockstep.plan import Plan
from lockstep.record.fingerprint import buffers_of
from lockstep.schedulers import create_scheduler
from lockstep.schemas import OwnOptimizer, OwnScheduler


def require_state(plan: Plan, net: nn.Module, checkpoint: Mapping[str, Any], content: Content) -> None:
    """Raise WrongForm unless optimizer, schedule, gradients and buffers are such as this plan makes for this net."""
    parameters, buffers = dict(net.named_parameters()), buffers_of(net)
    for state in content.ranks:
        for what, wanted, held in (("gradients", parameters, state.gradients), ("buffers", buffers, state.buffers)):
            check(held.keys() <= wanted.keys(), what)
            check(all(is_like(wanted[name], own) for name, own in held.items()), what)
    _require_optimizer(plan, net, checkpoint["optimizer_states"], content.position.steps)
    _require_schedule(plan, net, checkpoint["lr_schedulers"], content.position.steps)
    scaler = checkpoint.get(SCALER, {})
    check(isinstance(scaler, Mapping) and all(is_finite(value) for value in scaler.values()), SCALER)


def _require_optimizer(plan: Plan, net: nn.Module, states: Any, steps: int) -> None:
    what = "optimizer_states"
    check(isinstance(states, list) and len(states) == 1 and isinstance(states[0], Mapping), what)
    groups, entries = states[0]["param_groups"], states[0]["state"]
    fresh, taking = create_optimizer(plan.optimizer, net), create_optimizer(plan.optimizer, net)
    wanted = fresh.state_dict()["param_groups"]
    check(are_alike([group["params"] for group in wanted], [group["params"] for group in groups], exact=True), what)
    taking.load_state_dict({"param_groups": groups, "state": {}})  # torch knows what an older one of it wrote
    for own, taken in zip(wanted, taking.state_dict()["param_groups"], strict=True):
        check(own.keys() <= taken.keys() and is_finite(taken["lr"]) and taken["lr"] >= 0, what)
        check(all(are_alike(own[key], taken[key], exact=True) for key in own if key not in ("lr", "params")), what)
    parameters = [parameter for group in fresh.param_groups for parameter in group["params"]]
    if isinstance(plan.optimizer, OwnOptimizer):
        check(isinstance(entries, Mapping) and entries.keys() <= set(range(len(parameters))), what)
        return  # only the optimizer itself knows what it keeps
    adam = plan.optimizer.name != "sgd"
    names = {"step", "exp_avg", "exp_avg_sq"} if adam else {"momentum_buffer"}
    keeps = adam or getattr(plan.optimizer, "momentum", 0) > 0
    check(isinstance(entries, Mapping) and entries.keys() <= set(range(len(parameters))), what)
    stepped = steps > 0 and plan.precision != "16-mixed"  # which may have left out all of them
    whole = len(entries) == len(parameters) or (plan.model.own_code and len(entries) > 0)
    check(not (keeps and stepped) or whole, what)
    for index, entry in entries.items():
        check(isinstance(entry, Mapping) and entry.keys() <= names, what)
        check(not keeps or entry.keys() == names, what)
        for name, value in entry.items():
            check(_step(value, steps) if name == "step" else _moment(parameters[index], value, keeps), what)


def _require_schedule(plan: Plan, net: nn.Module, states: Any, steps: int) -> None:
    what = "lr_schedulers"
    fresh = create_scheduler(plan, create_optimizer(plan.optimizer, net))
    check(isinstance(states, list) and len(states) == (0 if fresh is None else 1), what)
    if fresh is None:
        return
    wanted, own = fresh.state_dict(), states[0]
    check(isinstance(own, Mapping) and wanted.keys() <= own.keys(), what)
    if isinstance(plan.scheduler, OwnScheduler):
        at_most = steps if plan.scheduler.interval == "step" else plan.max_epochs
        check(is_count(own.get("last_epoch", 0)) and own.get("last_epoch", 0) <= at_most, what)
        return  # only the schedule itself knows what it keeps
    check(all(are_alike(wanted[key], own[key]) for key in wanted), what)
    check(is_count(own["last_epoch"]) and own["last_epoch"] <= steps, what)
    check(plan.precision == "16-mixed" or own["last_epoch"] == steps, what)
    check(are_alike(wanted["base_lrs"], own["base_lrs"], exact=True), what)


def _step(value: Any, steps: int) -> bool:
    single = is_dense(value) and value.shape == () and value.is_floating_point()
    return single and 0 <= value.item() <= steps


def _moment(parameter: Tensor, value: Any, needed: bool) -> bool:
    return (value is None and not needed) or is_like(parameter, value)
