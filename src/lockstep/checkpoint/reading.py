"""Reading a checkpoint, and checking that it is of the plan that resumes from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from lockstep.checkpoint.content import SECTION, Content, Progress, before_fit_end, named_as_in
from lockstep.checkpoint.files import DamagedCheckpoint, read_checkpoint
from lockstep.checkpoint.identity import FORMER, require_same
from lockstep.config_error import as_typed, config_error, require
from lockstep.plan import Plan
from lockstep.record.file import earlier_lines
from lockstep.run_files import METRICS
from lockstep.schemas.groups import is_below

HINT = "ckpt_path=last, or the path of a .ckpt file that this project wrote"


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
    trained = checkpoint.get(SECTION, {}).get("identity", {})
    options = {key: value for key, value in trained.items() if is_below(key, ["model"])}
    hint = "the model and its options as in the config.yaml of its run"
    if options and FORMER not in trained and "model._target_" not in options:  # the name of code is no option
        hint = " ".join(f"{key}={as_typed(value)}" for key, value in options.items())
    require(expected == saved, "ckpt_path", plan.ckpt_path, reason, hint)
