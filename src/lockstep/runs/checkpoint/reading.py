"""Reading a checkpoint, and checking that it is of the plan that resumes from it: only the same training may."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from torch import nn

from lockstep.base.config_error import ConfigError, as_typed, config_error, require, shorten
from lockstep.plan.plan import Plan
from lockstep.plan.schemas.groups import is_below
from lockstep.plan.schemas.target import KEY
from lockstep.plan.schemas.trainer import DEFAULTS
from lockstep.runs.checkpoint.content import SECTION, Content, Progress, before_fit_end, named_as_in
from lockstep.runs.checkpoint.files import DamagedCheckpoint, read_checkpoint
from lockstep.runs.record import earlier_lines
from lockstep.runs.run_files import METRICS, run_of

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
FORMER = "data.sums"  # a key that runs of an earlier version have, which measured the sums of a task
# may not change either if ranks draw their own random numbers, or take statistics of their share of a batch
WORLD = ("strategy", "devices", "num_nodes", "accelerator")


@dataclass(frozen=True)
class ResumeState:
    """The checkpoint that a run begins from, if any.

    content: its part of ours, only if training resumes.
    is_finished: whether it had finished training, so that only the test is left.
    """

    checkpoint: Mapping[str, Any] | None = None
    content: Content | None = None
    is_finished: bool = False

    @property
    def position(self) -> Progress:
        return Progress(**self.content["position"]) if self.content else Progress()


def check_checkpoint(plan: Plan, keep_finished: bool = False) -> bool:
    """Return whether the run of the plan's checkpoint is finished, before any rank starts.

    Raises:
        ConfigError: this plan cannot resume from it, or, without `keep_finished`, nothing is left to train.
    """
    start = read_start(plan, mmap=True)
    if start.checkpoint is None or start.content is None:
        return False
    at, max_steps, steps = start.position, plan.trainer.max_steps, start.checkpoint["global_step"]
    by_steps = 0 < max_steps <= steps and at.epochs < plan.max_epochs
    reached = steps >= max_steps  # a module that steps several optimizers a batch may go past it
    trained = plan.resume and (reached if by_steps else at.epochs == plan.max_epochs or start.content["ended"])
    finished = trained and (Path(plan.run_dir) / METRICS).is_file()  # else it is to be tested
    remains = not plan.steps.is_finished(at.epochs, steps) or (trained and (keep_finished or not finished))
    key, bound, done = "max_epochs", plan.max_epochs, at.epochs
    if by_steps:
        key, bound, done = "trainer.max_steps", max_steps, steps
    reason = f"{plan.ckpt_path}: it has trained for {done} {key.rpartition('_')[2]} already"
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
        hint = "train=false test=true to test it, or ckpt_path=null to train anew"
        require(FORMER not in content["identity"], "ckpt_path", plan.ckpt_path, "an earlier version trained it", hint)
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
    current, saved = (dict(_leaves(DEFAULTS | {**options})) for options in (current, saved))
    differing = [key for key in {**current, **saved} if current.get(key) != saved.get(key)]  # null: a newer key
    if not differing:
        return
    keys = [key for key in differing if key in current and key in saved] or differing  # the others follow from them
    typed = [key for key in keys if key not in FACTS]
    keys = typed or keys
    reason = "what is trained would not be the same"
    if not {*keys}.isdisjoint(WORLD):
        reason = "its dropout or BatchNorm was each rank's own, so it resumes only in the world it began in"
    here, there = (
        " ".join(f"{key}={as_typed(options[key])}" if key in options else f"no {key}" for key in keys)
        for options in (current, saved)
    )
    hint = there if typed else "ckpt_path=null, or restore the data"
    if any(key.endswith(KEY) or KEY in str(saved.get(key)) for key in keys):  # code: it cannot be typed
        hint = f"resume=true hydra.run.dir={run_of(Path(str(plan.ckpt_path)))}"
    here, there = shorten(here), shorten(there)
    raise ConfigError(f"{here}: the run of ckpt_path={plan.ckpt_path} had {there}, and {reason}; write {hint}.")


def _leaves(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in options.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
