"""Whether the content of a checkpoint has the form that this project writes: types, shapes, possible counts.

A file may unpack and still hold anything: another form is refused before a run resumes from it.
"""

import random
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.batch_math import window_count
from lockstep.checkpoint.checks import check, is_count, is_dense, is_like, is_number
from lockstep.checkpoint.content import OWN, Content, RankState, prefixed
from lockstep.checkpoint.identity import digest_of
from lockstep.plan import Plan
from lockstep.record.file import Mark
from lockstep.task import SAMPLES

SUMS = ("epoch", "curve", "window")
"""What a rank has summed in the epoch, since the last point of the curve, and of the current step."""


def require_weights(checkpoint: Mapping[str, Any]) -> None:
    """Raise WrongForm unless the checkpoint holds a net's state by name."""
    state = checkpoint["state_dict"]
    check(isinstance(state, Mapping) and all(is_dense(value) for value in state.values()), "state_dict")


def fits(net: nn.Module, checkpoint: Mapping[str, Any]) -> bool:
    """Whether the checkpoint's weights are those of such a net, by names, shapes and kind of number."""
    wanted, own = prefixed(net.state_dict()), checkpoint["state_dict"]
    return wanted.keys() == own.keys() and all(is_like(tensor, own[name]) for name, tensor in wanted.items())


def require_names(content: Content) -> str:
    """The names of the sums that it holds, in a line. Raises WrongForm if they are no names."""
    names = content.sum_names
    check(isinstance(names, list) and all(isinstance(name, str) and name.isprintable() for name in names), "sum_names")
    return ", ".join(names) or "none"


def require_content(plan: Plan, content: Content) -> None:
    """Raise WrongForm unless a run of this plan can resume from it: a possible position, and the state beside it."""
    at = content.position
    check(all(is_count(value) for value in (at.epochs, at.batch, at.steps)), "position")
    windows = window_count(plan.data.train_samples, plan.batch_size, plan.accumulate_grad_batches, plan.drop_last)
    steps = at.epochs * windows + at.batch // plan.accumulate_grad_batches
    skipping = plan.precision == "16-mixed"  # the scaler leaves out steps that overflow
    check(at.batch < plan.epoch_batches and (at.steps == steps or (skipping and at.steps <= steps)), "position")
    _require_mark(content.mark)
    check(isinstance(content.results, Mapping) and all(map(is_number, content.results.values())), "results")
    check(all(isinstance(name, str) for name in content.results), "results")
    best = content.best
    pair = isinstance(best, tuple | list) and len(best) == 2
    check(best is None or (pair and isinstance(best[0], str) and is_number(best[1])), "best")
    check(isinstance(content.best_yet, bool), "best_yet")
    check(len(content.ranks) > 0, "ranks")
    for state in content.ranks:
        _require_sums(plan, state)
        _require_random(state)
        for what, own in (("gradients", state.gradients), ("buffers", state.buffers)):
            check(isinstance(own, Mapping) and all(map(is_dense, own.values())), what)


def _require_mark(mark: Mark) -> None:
    check(is_count(mark.lines), "record")
    check(mark.size is None or is_count(mark.size), "record_size")
    check(mark.sha256 is None or isinstance(mark.sha256, str), "record_sha256")


def require_comparable(checkpoint: Mapping[str, Any], leaves: Iterable[tuple[str, Any]]) -> None:
    """Raise WrongForm, or what else its content leads to, unless it can be compared, whatever its plan is.

    Args:
        leaves: all of its values, by their keys.
    """
    require_weights(checkpoint)
    check(all(isinstance(name, str) for name in checkpoint["state_dict"]), "state_dict")
    for key, value in leaves:
        check(not isinstance(value, Tensor) or is_dense(value), key)
    section = checkpoint.get(OWN, {})
    check(isinstance(section, Mapping), OWN)
    position = section.get("position", {})
    check(isinstance(position, Mapping) and all(map(is_count, position.values())), "position")
    _require_mark(Mark(section.get("record", 0), section.get("record_size"), section.get("record_sha256")))
    identity = section.get("identity", {})
    check(isinstance(identity, Mapping) and bool(digest_of(identity)), "identity")


def _require_sums(plan: Plan, state: RankState) -> None:
    sums = state.sums
    check(isinstance(sums, Mapping) and {*SUMS, "ids"} == sums.keys(), "sums")
    check(all(is_dense(sums[name]) and sums[name].shape == (len(plan.task.sums),) for name in SUMS), "sums")
    check(all(sums[name].dtype == torch.float64 for name in SUMS), "sums")
    ids = sums["ids"]
    check(is_dense(ids) and ids.shape == () and ids.dtype == torch.int64, "sums")
    for name in SUMS:
        count = float(sums[name][SAMPLES])
        check(count.is_integer() and 0 <= count < 2**53, "sums")
    check(sums["epoch"][SAMPLES].item() <= plan.data.train_samples, "sums")


def _require_random(state: RankState) -> None:
    """Set each state on a fresh generator, which raises an error if it cannot be set."""
    if state.random == {}:
        return
    own = state.random
    version, internal, gauss = own["python"]
    random.Random().setstate((version, tuple(internal), gauss))
    kind, keys, position, has_gauss, cached = own["numpy"]
    check(is_dense(keys) and keys.dtype == torch.int64 and keys.shape == (624,), "random")
    in_range = bool(((keys >= 0) & (keys < 2**32)).all()) and is_count(position) and position <= 624
    check(kind == "MT19937" and in_range and has_gauss in (0, 1) and is_number(cached), "random")
    np.random.RandomState().set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.Generator().set_state(own["torch"])
    check(all(is_dense(one) and one.dtype == torch.uint8 and one.dim() == 1 for one in own["cuda"]), "random")
