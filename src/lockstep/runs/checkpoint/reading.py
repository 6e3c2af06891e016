"""Reading a checkpoint, and checking that it is of the plan that resumes from it: only the same training may."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from torch import nn

from lockstep.base.config_error import ConfigError, as_typed, config_error, require, shorten
from lockstep.plan.plan import Plan
from lockstep.plan.schemas.groups import is_below, leaves
from lockstep.plan.schemas.run import DEFAULTS
from lockstep.runs.checkpoint.content import SECTION, Content, Progress, before_fit_end, named_as_in
from lockstep.runs.checkpoint.files import DamagedCheckpoint, read_checkpoint
from lockstep.runs.record import earlier_lines
from lockstep.runs.run_files import METRICS

HINT = "ckpt_path=last, or the path of a .ckpt file that this project wrote"

GROUPS = ("model", "data", "optimizer", "scheduler")
TRAINING = (  # may not change; engine, strategy, devices, threads, memory_format, logger and the number of epochs may
    *("seed", "batch_size", "accumulate_grad_batches", "drop_last", "precision", "gradient_clip_val"),
    *("sync_batchnorm", "loss_reduction"),
)

MAY_MOVE = ("data.root", "data.loader", "data.num_workers", "data.pin_memory", "data.persistent_workers")
FACTS = {  # about the data, which the inspection tells, and what to call them
    **{"data.train_samples": "train_samples", "data.val_samples": "val_size", "data.test_samples": "test_size"},
    **{"data.train_batches": "train_batches", "data.regular": "regular"},
}
# may not change either if ranks draw their own random numbers, or take statistics of their share of a batch
WORLD = ("strategy", "devices", "num_nodes", "accelerator")


@dataclass(frozen=True)
class ResumeState:
    """The checkpoint that a run begins from, if any, and its content, if training resumes."""

    checkpoint: Mapping[str, Any] | None = None
    content: Content | None = None
    is_finished: bool = False

    @property
    def position(self) -> Progress:
        return Progress(**self.content["position"]) if self.content else Progress()


def check_checkpoint(plan: Plan, keep_finished: bool = False) -> bool:
    """Return whether the run of the plan's checkpoint is finished; raise if the plan cannot resume from it.

    Without `keep_finished` it also raises if nothing is left to train.
    """
    start = read_start(plan, mmap=True)
    if start.checkpoint is None or start.content is None:
        return False
    epochs, steps, max_steps = start.position.epochs, start.checkpoint["global_step"], plan.trainer.max_steps
    ends_by_steps = 0 < max_steps <= steps
    trained = plan.resume and (ends_by_steps or epochs == plan.max_epochs or start.content["ended"])
    finished = trained and (Path(plan.run_dir) / METRICS).is_file()  # else it is to be tested
    remains = not plan.steps.is_finished(epochs, steps) or (trained and (keep_finished or not finished))
    key, bound, done = (
        ("trainer.max_steps", max_steps, steps) if ends_by_steps else ("max_epochs", plan.max_epochs, epochs)
    )
    reason = f"{plan.ckpt_path}: it has trained to epoch {epochs}, for {steps} steps already"
    require(remains, key, bound, reason, f"{key}={done + 1}, or more")
    if not finished:
        earlier_lines(Path(str(plan.ckpt_path)), Path(plan.run_dir), start.content["record"])
    return finished


def read_start(plan: Plan, mmap: bool = False) -> ResumeState:
    """Read the plan's checkpoint, if any, without running code from it, or raise if it is of another training."""
    if plan.ckpt_path is None:
        return ResumeState()
    try:
        checkpoint = read_checkpoint(Path(plan.ckpt_path), mmap)
        checkpoint["state_dict"].keys()
        if not plan.train:
            return ResumeState(checkpoint)
        content = checkpoint[SECTION]
        require_same(plan, content["identity"])
        finished = plan.steps.is_finished(content["position"]["epochs"], checkpoint["global_step"])
        finished = finished or (plan.resume and content["ended"])
        return ResumeState(checkpoint if finished else before_fit_end(checkpoint), content, finished)
    except DamagedCheckpoint as damaged:
        raise config_error("ckpt_path", plan.ckpt_path, str(damaged), HINT) from None
    except (LookupError, TypeError, AttributeError):
        reason = "it is not a checkpoint that this project wrote"
        raise config_error("ckpt_path", plan.ckpt_path, reason, HINT) from None


def require_net(plan: Plan, net: nn.Module, checkpoint: Mapping[str, Any]) -> None:
    """Raise unless the checkpoint's weights have the names and shapes of the net's."""
    expected, saved = (
        {name: getattr(tensor, "shape", None) for name, tensor in state.items()}
        for state in (net.state_dict(), named_as_in(net, checkpoint["state_dict"]))
    )
    reason = f"it holds another net than model={plan.model.name} with its options"
    hint = "the model and its options as in the config.yaml of its run"
    require(expected == saved, "ckpt_path", plan.ckpt_path, reason, hint)


def identity(plan: Plan, depends_on_world: bool) -> dict[str, Any]:
    """Return the options that a plan's results depend on, by the keys of the command line: `model.net.hidden`, …"""
    options = {key: value for key, value in plan.options.items() if is_below(key, GROUPS)}
    options |= {key: getattr(plan, key) for key in TRAINING}
    options |= {key: attrgetter(key)(plan) for key in DEFAULTS if attrgetter(key)(plan) != DEFAULTS[key]}
    options |= {name: getattr(plan.data, fact) for name, fact in FACTS.items()}
    if plan.callbacks:
        options["callbacks"] = [callback.call for callback in plan.callbacks]
    if depends_on_world:
        options |= {key: getattr(plan, key) for key in WORLD} | {"strategy": plan.strategy.resumes_as}
    plain: dict[str, Any] = json.loads(json.dumps(options))
    return {key: value for key, value in plain.items() if not is_below(key, MAY_MOVE)}


def require_same(plan: Plan, saved: Mapping[str, Any]) -> None:
    """Raise if a plan is another training than that of a checkpoint with this identity; name the keys that differ."""
    current = identity(plan, not saved.keys().isdisjoint(WORLD))  # the same net depends on it as much
    current, saved = (dict(leaves(DEFAULTS | {**options}, of_lists=False)) for options in (current, saved))
    keys = [key for key in {**current, **saved} if current.get(key) != saved.get(key)]  # null: a newer key
    keys = [key for key in keys if key in current and key in saved] or keys  # the others follow from them
    keys = [key for key in keys if key not in FACTS] or keys
    if not keys:
        return
    reason = "what is trained would not be the same"
    if not {*keys}.isdisjoint(WORLD):
        reason = "its dropout or BatchNorm was each rank's own, so it resumes only in the world it began in"
    here, there = (
        shorten(" ".join(f"{key}={as_typed(options[key])}" if key in options else f"no {key}" for key in keys))
        for options in (current, saved)
    )
    hint = "ckpt_path=null to train anew, or the options as they were"
    raise ConfigError(f"{here}: the run of ckpt_path={plan.ckpt_path} had {there}, and {reason}; write {hint}.")
