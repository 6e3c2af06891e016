"""Reading a checkpoint, and checking it against the plan that resumes from it."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from lockstep.checkpoint.checks import check, is_count, is_dense, is_like, unfit
from lockstep.checkpoint.content import OWN, Content, Progress, own_names, require_mark
from lockstep.checkpoint.files import can_be_mapped, damage
from lockstep.checkpoint.identity import digest_of, require_same
from lockstep.checkpoint.optimizer_form import require_state
from lockstep.config_error import config_error, require
from lockstep.plan import Plan
from lockstep.record.file import Mark, lines_so_far
from lockstep.record.recorder import Recorder
from lockstep.run_files import METRICS
from lockstep.safe_loading import load
from lockstep.structures import tensors_of

ANOTHER = "ckpt_path=last, or the path of a whole .ckpt file that this project wrote"


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


def check_checkpoint(plan: Plan, keep_finished: bool = False) -> bool:
    """Refuse a file that is no checkpoint, or that this plan cannot resume from, before any rank starts.

    With `keep_finished` a finished run is not refused: the result says whether it is finished.
    """
    checkpoint, content = _read(plan, mmap=True)
    if content is None:
        return False
    done = _done(plan, checkpoint, content, keep_finished)
    if not done:
        lines_so_far(Path(str(plan.ckpt_path)), Path(plan.run_dir), content.mark)
    return done


def resume_state(plan: Plan, net: nn.Module) -> ResumeState:
    """By the checkpoint of the plan's `ckpt_path`, if it has one; refused, too, if it is of another net."""
    start = read_start(plan)
    if start.checkpoint is not None:
        require_net(plan, net, start.checkpoint)
    if start.checkpoint is not None and start.content is not None:
        with of_the_file(Path(str(plan.ckpt_path))):
            require_state(plan, net, start.checkpoint, start.content)
    return start


def read_start(plan: Plan) -> ResumeState:
    """The same, whatever net it is of: one may be there only later."""
    if plan.ckpt_path is None:
        return ResumeState()
    checkpoint, content = _read(plan, mmap=False)
    if content is not None:
        _done(plan, checkpoint, content)
    return ResumeState(checkpoint, content)


def require_net(plan: Plan, net: nn.Module, checkpoint: Mapping[str, Any]) -> None:
    """Refuse a checkpoint whose weights are not those of such a net, by names, shapes and kind of number."""
    wanted, own = net.state_dict(), own_names(checkpoint)
    fits = wanted.keys() == own.keys() and all(is_like(one, own[name]) for name, one in tensors_of(wanted).items())
    why = f"it holds another net than model={plan.model.name} with its options"
    require(fits, "ckpt_path", plan.ckpt_path, why, ANOTHER)


def _read(plan: Plan, mmap: bool) -> tuple[Mapping[str, Any], Content | None]:
    """The checkpoint, and where training resumes its content; a file that would run code is refused unread."""
    path = Path(str(plan.ckpt_path))
    torn = damage(path)
    require(torn is None, "ckpt_path", path, str(torn), ANOTHER)
    with of_the_file(path):
        checkpoint: Mapping[str, Any] = load(path, mmap=mmap and can_be_mapped(path))
        _require_weights(checkpoint)
        _ = checkpoint["epoch"], checkpoint["optimizer_states"]
        check(is_count(checkpoint["global_step"]), "global_step")
        if not plan.train:
            return checkpoint, None
        content = Content.from_saved(checkpoint[OWN])
        whole = digest_of(content.identity) == content.digest
    require(whole, "ckpt_path", path, "it does not say of which plan it is", ANOTHER)
    require_same(plan, content.identity)
    with of_the_file(path):
        names = content.named_sums
    here = ", ".join(plan.objective.sums)
    require(names == here, "ckpt_path", path, f"it holds sums of {names}, and this version measures {here}", ANOTHER)
    with of_the_file(path):
        content.require(plan)
    return checkpoint, content


@contextmanager
def of_the_file(path: Path) -> Iterator[None]:
    """Any error within is the file's fault: raise a ConfigError that names it."""
    try:
        yield
    except Exception as error:
        raise config_error("ckpt_path", path, unfit(error), ANOTHER) from None


def _done(plan: Plan, checkpoint: Mapping[str, Any], content: Content, keep_finished: bool = False) -> bool:
    """Whether the run is finished, which is refused without `keep_finished`, as are bounds that are too small."""
    at, most, own = content.position, plan.trainer.max_steps, plan.model.lightning
    steps = checkpoint["global_step"] if own else at.steps
    by_steps = 0 < most <= steps and at.epochs < plan.max_epochs
    reached = steps == most or own  # a module that steps several optimizers a batch may go past it
    trained = plan.resume and (reached if by_steps else at.epochs == plan.max_epochs or content.ended)
    finished = trained and (Path(plan.run_dir) / METRICS).is_file()  # else it is to be tested
    more = not plan.trained(at.epochs, steps) or (trained and (keep_finished or not finished))
    key, bound, done = ("trainer.max_steps", most, steps) if by_steps else ("max_epochs", plan.max_epochs, at.epochs)
    why = f"{plan.ckpt_path}: it has trained for {done} {key.rpartition('_')[2]} already"
    require(more, key, bound, why, f"{key}={done + 1}, or more")
    return finished


EXTRA_STATE = "_extra_state"
"""How names end of what a layer's `get_extra_state` put in, which may be anything."""


def _require_weights(checkpoint: Mapping[str, Any]) -> None:
    """Raise WrongForm unless the checkpoint holds a net's state by name."""
    state = checkpoint["state_dict"]
    check(isinstance(state, Mapping), "state_dict")
    check(all(is_dense(value) for name, value in state.items() if not str(name).endswith(EXTRA_STATE)), "state_dict")


def require_comparable(checkpoint: Mapping[str, Any], leaves: Iterable[tuple[str, Any]]) -> None:
    """Raise WrongForm, or what else its content leads to, unless it can be compared, whatever its plan is.

    Args:
        leaves: all of its values, by their keys.
    """
    _require_weights(checkpoint)
    check(all(isinstance(name, str) for name in checkpoint["state_dict"]), "state_dict")
    for key, value in leaves:
        check(not isinstance(value, Tensor) or is_dense(value), key)
    section = checkpoint.get(OWN, {})
    check(isinstance(section, Mapping), OWN)
    position = section.get("position", {})
    check(isinstance(position, Mapping) and all(map(is_count, position.values())), "position")
    require_mark(Mark(section.get("record", 0), section.get("record_size", 0), section.get("record_sha256", "")))
    identity = section.get("identity", {})
    check(isinstance(identity, Mapping) and bool(digest_of(identity)), "identity")
