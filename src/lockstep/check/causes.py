"""The likely cause of a difference between one process and several ranks, from what differs first and how."""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.check.comparison import COUNT, STATE, Gap, Trace, distances

CAUSES: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).parent / "causes.toml").read_text())
"""The sentence, advice on what to change, and whether it is usual, by the name of a cause."""


@dataclass(frozen=True)
class Pair:
    """One process and several ranks.

    gaps: between the ranks. kind: of the loss, see `LossProbe`. layer: the one that mixes samples.
    """

    single: Trace
    ranks: Sequence[Trace]
    gaps: dict[str, Gap]
    kind: str
    layer: str = ""

    @property
    def traces(self) -> list[Trace]:
        return [self.single, *self.ranks]

    @property
    def length(self) -> int:
        return min(len(trace["steps"]) for trace in self.traces)

    def among(self, gap: Gap) -> bool:
        """Whether the ranks differ from each other by then."""
        return gap.quantity in self.gaps and self.gaps[gap.quantity].step <= gap.step

    def at(self, step: int) -> tuple[Any, list[Any]]:
        """Return a step of one process and of all ranks; a last one that is not there is the state at the end."""
        alone, *shared = ([*trace["steps"], trace["end"]][step] for trace in self.traces)
        return alone, shared

    def is_off(self, ratio: float | None) -> bool:
        """Whether a ratio is the number of ranks, or its inverse."""
        return near(ratio, len(self.ranks)) or near(ratio, 1 / len(self.ranks))

    def hidden(self, step: int) -> list[str]:
        """Return the plain attributes that differ at the beginning of a step."""
        alone, *shared = (trace["steps"][min(step, len(trace["steps"]) - 1)]["hidden"] for trace in self.traces)
        apart = [name for each in shared for name, difference in distances(alone, each).items() if difference]
        return [name for name in dict.fromkeys(apart) if not name.endswith(COUNT)]

    def changed_by(self, gap: Gap) -> list[bool]:
        """Return for each rank whether it has changed these tensors until a step."""
        pairs = zip(self.at(0)[1], self.at(gap.step)[1], strict=True)
        changes = (distances(before[gap.quantity], now[gap.quantity]) for before, now in pairs)
        return [any(map(each.get, gap.names)) for each in changes]


def ratio_of(one: dict[str, Any], other: dict[str, Any], quantity: str = "gradient") -> float | None:
    """Return the factor between the norms of all gradients of two steps."""
    norms = [math.hypot(*(values[0] for values in step.get(quantity, {}).values())) for step in (one, other)]
    return norms[1] / norms[0] if norms[0] and all(map(math.isfinite, norms)) else None


def near(value: float | None, expected: float) -> bool:
    return value is not None and abs(value / expected - 1) < 1e-4


def cause_between(pair: Pair, gap: Gap) -> str:
    """Return the name of the cause, or an empty text if no rule fits."""
    if "batch" in pair.gaps:
        return "decided by rank"
    if gap.quantity not in RULES or gap.step >= pair.length + (gap.quantity in STATE):
        return ""
    cause = RULES[gap.quantity](pair, gap)
    return cause or "state in attribute" * (gap.quantity in ("loss", "gradient") and bool(pair.hidden(gap.step + 1)))


def of_state(pair: Pair, gap: Gap) -> str:
    """Return the cause of different parameters or buffers."""
    are_buffers, names = gap.quantity == "buffers", {*gap.names}
    if are_buffers and {name.rpartition(".")[0] for name in names} <= {*pair.single["facts"]["norms"]}:
        return "BatchNorm per rank"
    if not pair.among(gap):
        return ""
    if not are_buffers and gap.step == 0:
        return "other initial weights"
    first, *others = pair.changed_by(gap)
    if first and not any(others):
        return "rank 0 alone"
    if are_buffers:
        return "local buffer update"
    return "" if names & {*pair.single["facts"]["trainable"]} else "local state update"


def of_loss(pair: Pair, gap: Gap) -> str:
    (alone, shared), kind = pair.at(gap.step), pair.kind
    if alone["unregistered"] and gap.step > 0:
        return "layer not registered"
    if alone["backwards"] != shared[0]["backwards"]:
        return "micro-batches not divided"
    ratio = sum(step["loss"] for step in shared) / len(shared) / (alone["loss"] or math.inf)
    if kind == "weighted" and near(ratio, 1 / len(shared)) and shared[0]["calls"]:
        return "count of all ranks"
    if kind != "summed" and pair.is_off(ratio):
        return "loss is summed" if not kind and ratio < 1 else "scaled by world"
    if kind in ("summed", "term", "weighted"):
        return {"summed": "loss is summed", "term": "term per batch", "weighted": "mean of means"}[kind]
    if pair.hidden(gap.step):
        return "state in attribute"
    if pair.layer in pair.single["facts"]["norms"]:
        return "BatchNorm per rank"
    if pair.layer or kind == "across":
        return "loss across samples"
    return "mean of means" if len({sum(step["sizes"]) for step in shared}) > 1 else ""


def of_gradient(pair: Pair, gap: Gap) -> str:
    alone, shared = pair.at(gap.step)
    ratio, calls = ratio_of(alone, shared[0]), shared[0]["calls"]
    if pair.among(gap):
        if {*pair.gaps["gradient"].names} <= {*shared[0]["unfrozen"]}:
            return "unfrozen after wrapping"
        is_past = not alone["backwards"] or any(distances(*(step["reduced"] for step in shared[:2])).values())
        return "manual_backward not called" if is_past else ""
    if near(ratio, len(shared)):
        is_right = "reduced" in alone and near(ratio_of(alone, shared[0], "reduced"), 1)
        return "gradients reduced twice" if is_right else "sum, not mean"
    if shared[0]["hooked"]:
        return "clipped before reduction"
    if any("gather" in call for call in calls):
        return "gather without gradient"
    return ("reduced outside autograd" if calls else "scaled by world") if near(ratio, 1 / len(shared)) else ""


def of_applied(pair: Pair, gap: Gap) -> str:
    if pair.among(gap):
        return "changed on each rank"
    alone, shared = pair.at(gap.step)
    return "scaled by world" if pair.is_off(ratio_of(alone, shared[0], "applied")) else ""


def of_rate(pair: Pair, gap: Gap) -> str:
    alone, shared = ([step["rate"][0] for step in trace["steps"]] for trace in (pair.single, pair.ranks[0]))
    if "rate" in pair.gaps:
        rounds = [*zip(*(trace["validations"] for trace in pair.ranks), strict=False)]
        is_logged = any(each["values"] != values[0]["values"] for values in rounds for each in values)
        return "sync_dist missing" if is_logged else "decided by rank"
    if gap.step == 0:
        return "rate times world"
    ahead = alone[gap.step * len(pair.ranks) - 1 :][:2]
    if any(near(shared[gap.step], rate) for rate in ahead if rate):
        return "schedule stepped per rank"
    moved = [abs(rates[gap.step] - rates[0]) for rates in (alone, shared)]
    return "schedule too long" if moved[1] < moved[0] else "schedule stepped per rank"


RULES = {
    "parameters": of_state,
    "buffers": of_state,
    "loss": of_loss,
    "gradient": of_gradient,
    "applied": of_applied,
    "rate": of_rate,
}


def cause_of_resume(pairs: Sequence[tuple[Trace, Trace]], gap: Gap, is_right_alone: bool) -> tuple[str, str]:
    """Return the cause of a difference after a resume, and the tensor or attribute."""
    if gap.quantity == "optimizer":
        return "optimizer not restored", gap.names[0]
    if gap.quantity in STATE and gap.step == 0:
        return "state not restored", gap.names[0]
    for one, other in pairs:
        for name, difference in distances(one["steps"][0]["hidden"], other["steps"][0]["hidden"]).items():
            if difference:
                cause = "optimizer of its own" if name.endswith("(optimizer)") else "attribute not saved"
                return "rank 0's shard saved" if is_right_alone else cause, name
    return "", gap.names[0]
