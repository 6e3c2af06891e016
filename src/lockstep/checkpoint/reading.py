"""Reading a checkpoint, and checking it against the plan that resumes from it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lockstep.checkpoint.checks import unfit
from lockstep.checkpoint.content import OWN, Content, Progress
from lockstep.checkpoint.files import can_be_mapped, damage, newest_whole
from lockstep.checkpoint.form import fits, require_content, require_names, require_weights
from lockstep.checkpoint.identity import digest_of, require_same
from lockstep.checkpoint.optimizer_form import require_state
from lockstep.config_error import config_error, require
from lockstep.plan import Plan
from lockstep.record.file import Mark, lines_so_far
from lockstep.record.recorder import Recorder
from lockstep.run_files import CONFIG, METRICS

ANOTHER = "ckpt_path=last, or the path of a whole .ckpt file that this project wrote"


def resume_after_restart(plan: Plan, restarts: int) -> Plan:
    """The plan of ranks that may have been restarted after a failure: they resume from their own last checkpoint."""
    run = Path(plan.run_dir)
    last, _damaged = newest_whole([run]) if plan.train and restarts else (None, [])
    if last is None or last.stat().st_mtime_ns < began(run):
        return plan
    return replace(plan, ckpt_path=str(last), resume=True)


def began(run: Path) -> int:
    """When the run began, by its configuration, its first file: an older checkpoint is an earlier run's."""
    config = run / CONFIG
    return config.stat().st_mtime_ns if config.is_file() else 0


def check_checkpoint(plan: Plan, keep_finished: bool = False) -> bool:
    """Refuse a file that is no checkpoint, or that this plan cannot resume from, before any rank starts.

    With `keep_finished` a finished run is not refused: the result says whether it is finished.
    """
    checkpoint = _read(plan, mmap=True)
    done = _done(plan, checkpoint, keep_finished)
    if plan.train and not done:
        lines_so_far(Path(str(plan.ckpt_path)), Path(plan.run_dir), Content.from_saved(checkpoint[OWN]).mark)
    return done


@dataclass(frozen=True)
class ResumeState:
    """Where a run begins: at the beginning, or at a checkpoint. `content` only where training resumes."""

    checkpoint: Mapping[str, Any] | None = None
    content: Content | None = None

    @property
    def at(self) -> Progress:
        return self.content.position if self.content else Progress()

    def recorder(self, plan: Plan, rank: int, net: nn.Module) -> Recorder:
        """The recorder that continues the record from here."""
        at, mark = self.at, self.content.mark if self.content else Mark()
        return Recorder(plan, rank, net, epoch=at.epochs, batch=at.batch, steps=at.steps, mark=mark)


def resume_state(plan: Plan, net: nn.Module) -> ResumeState:
    """By the checkpoint of the plan's `ckpt_path`, if it has one; refused, too, if it is of another net."""
    if plan.ckpt_path is None:
        return ResumeState()
    checkpoint = _read(plan, mmap=False)
    _done(plan, checkpoint)
    why = f"it holds another net than model={plan.model.name} with its options"
    require(fits(net, checkpoint), "ckpt_path", plan.ckpt_path, why, ANOTHER)
    if not plan.train:
        return ResumeState(checkpoint)
    content = Content.from_saved(checkpoint[OWN])
    with _of_the_file(Path(plan.ckpt_path)):
        require_state(plan, net, checkpoint, content)
    return ResumeState(checkpoint, content)


def _read(plan: Plan, mmap: bool) -> Mapping[str, Any]:
    """Only tensors and plain values are loaded: a file that would run code is refused."""
    path = Path(str(plan.ckpt_path))
    torn = damage(path)
    require(torn is None, "ckpt_path", path, str(torn), ANOTHER)
    with _of_the_file(path):
        checkpoint: Mapping[str, Any] = torch.load(
            path, map_location="cpu", weights_only=True, mmap=mmap and can_be_mapped(path)
        )
        require_weights(checkpoint)
        _ = checkpoint["epoch"], checkpoint["optimizer_states"]
        if not plan.train:
            return checkpoint
        content = Content.from_saved(checkpoint[OWN])
        whole = digest_of(content.identity) == content.digest
    require(whole, "ckpt_path", path, "it does not say of which plan it is", ANOTHER)
    require_same(plan, content.identity)
    with _of_the_file(path):
        names = require_names(content)
    here = ", ".join(plan.task.sums)
    require(names == here, "ckpt_path", path, f"it holds sums of {names}, and this version measures {here}", ANOTHER)
    with _of_the_file(path):
        require_content(plan, content)
    return checkpoint


@contextmanager
def _of_the_file(path: Path) -> Iterator[None]:
    """Any error within is the file's fault: raise a ConfigError that names it."""
    try:
        yield
    except Exception as error:
        raise config_error("ckpt_path", path, unfit(error), ANOTHER) from None


def _done(plan: Plan, checkpoint: Mapping[str, Any], keep_finished: bool = False) -> bool:
    """Whether the run is finished, which is refused without `keep_finished`, as is a `max_epochs` that is too small."""
    if not plan.train:
        return False
    epochs, measured = Content.from_saved(checkpoint[OWN]).position.epochs, Path(plan.run_dir) / METRICS
    trained = plan.resume and epochs == plan.max_epochs
    finished = trained and measured.is_file()  # else it is to be tested
    why = f"{plan.ckpt_path}: it has trained for {epochs} epochs already"
    more = epochs < plan.max_epochs or (trained and (keep_finished or not finished))
    require(more, "max_epochs", plan.max_epochs, why, f"max_epochs={epochs + 1}, or more")
    return finished
