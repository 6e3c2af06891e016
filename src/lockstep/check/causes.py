"""The likely cause of a difference, from what parts first and how: rules of mechanisms."""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.check.differences import Part, Parted, distances
from lockstep.check.sketches import COUNT, Trace

CAUSES: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).parent / "causes.toml").read_text())
"""The sentence and what to change, by the name of a cause."""


@dataclass(frozen=True)
class Pair:
    """One process and several ranks. between: where the ranks part from each other. coupling: see `Coupling`."""

    single: Trace
    ranks: Sequence[Trace]
    between: Parted
    coupling: dict[str, Any]

    @property
    def world(self) -> int:
        return len(self.ranks)


def ratio_of(one: dict[str, Any], other: dict[str, Any], quantity: str = "gradient") -> float | None:
    """Return the factor between the norms of all gradients of two steps."""
    norms = [math.hypot(*(values[0] for values in step.get(quantity, {}).values())) for step in (one, other)]
    return norms[1] / norms[0] if norms[0] and all(map(math.isfinite, norms)) else None


def near(value: float | None, expected: float) -> bool:
    return value is not None and abs(value / expected - 1) < 1e-4


def cause_between(pair: Pair, quantity: str, part: Part) -> str:
    """Return the name of the cause, or an empty text if no rule fits."""
    if "batch" in pair.between:
        return "decided by rank"
    rule = RULES.get(quantity)
    lengths = [len(trace["steps"]) for trace in (pair.single, *pair.ranks)]
    is_within = part.step < min(lengths) + (quantity in ("parameters", "buffers"))
    return rule(pair, part) if rule and is_within else ""


def of_buffers(pair: Pair, part: Part) -> str:
    owners = {name.rpartition(".")[0] for name in part.names}
    if owners <= {*pair.single["facts"]["norms"]}:
        return "BatchNorm per rank"
    if "buffers" not in pair.between or pair.between["buffers"].step > part.step:
        return ""
    return "rank 0 alone" if by_rank_0(pair, part, "buffers") else "local buffer update"


def by_rank_0(pair: Pair, part: Part, quantity: str) -> bool:
    """Whether these tensors have changed on rank 0 alone until a step."""
    states = [[trace["steps"][0], [*trace["steps"], trace["end"]][part.step]] for trace in pair.ranks]
    moved = [any(distances(*(each[quantity] for each in pairs)).get(name) for name in part.names) for pairs in states]
    return moved[0] and not any(moved[1:])


def of_parameters(pair: Pair, part: Part) -> str:
    if "parameters" not in pair.between or pair.between["parameters"].step > part.step:
        return ""
    if part.step == 0:
        return "other initial weights"
    if by_rank_0(pair, part, "parameters"):
        return "rank 0 alone"
    return "" if {*part.names} & {*pair.single["facts"]["trainable"]} else "local state update"


def of_loss(pair: Pair, part: Part) -> str:
    alone, shared = pair.single["steps"][part.step], [trace["steps"][part.step] for trace in pair.ranks]
    kind = pair.coupling.get("coupling")
    if alone["unregistered"] and part.step > 0:
        return "layer not registered"
    if alone["backwards"] != shared[0]["backwards"]:
        return "micro-batches not divided"
    factor = sum(step["loss"] for step in shared) / pair.world / (alone["loss"] or math.inf)
    if kind == "weighted" and near(factor, 1 / pair.world) and shared[0]["calls"]:
        return "count of all ranks"
    if kind != "summed" and (near(factor, pair.world) or near(factor, 1 / pair.world)):
        return "loss is summed" if kind is None and factor < 1 else "scaled by world"
    if kind == "layer":
        kind = "norm" if pair.coupling["layer"] in pair.single["facts"]["norms"] else "across"
    named = {"norm": "BatchNorm per rank", "summed": "loss is summed", "term": "term per batch"}
    named |= {"weighted": "mean of means", "across": "loss across samples"}
    if kind in named:
        return named[kind]
    hidden = [distances(alone["hidden"], step["hidden"]).items() for step in shared]
    if any(difference and not name.endswith(COUNT) for rank in hidden for name, difference in rank):
        return "state in attribute"
    return "mean of means" if len({sum(step["sizes"]) for step in shared}) > 1 else ""


def of_gradient(pair: Pair, part: Part) -> str:
    alone, shared = pair.single["steps"][part.step], [trace["steps"][part.step] for trace in pair.ranks]
    ratio = ratio_of(alone, shared[0])
    if "gradient" in pair.between and pair.between["gradient"].step <= part.step:
        names = {*pair.between["gradient"].names}
        if names <= {*shared[0]["unfrozen"]}:
            return "unfrozen after wrapping"
        is_past = not alone["backwards"] or any(distances(*(step["reduced"] for step in shared[:2])).values())
        return "manual_backward not called" if is_past else ""
    if near(ratio, pair.world):
        is_right = "reduced" in alone and near(ratio_of(alone, shared[0], "reduced"), 1)
        return "gradients reduced twice" if is_right else "sum, not mean"
    if shared[0]["hooked"]:
        return "clipped before reduction"
    if any("gather" in call for call in shared[0]["calls"]):
        return "gather without gradient"
    if near(ratio, 1 / pair.world):
        return "reduced outside autograd" if shared[0]["calls"] else "scaled by world"
    return ""


def of_applied(pair: Pair, part: Part) -> str:
    if "applied" in pair.between and pair.between["applied"].step <= part.step:
        return "changed on each rank"
    ratio = ratio_of(pair.single["steps"][part.step], pair.ranks[0]["steps"][part.step], "applied")
    return "scaled by world" if near(ratio, pair.world) or near(ratio, 1 / pair.world) else ""


def of_rate(pair: Pair, part: Part) -> str:
    alone, shared = ([step["rate"] for step in trace["steps"]] for trace in (pair.single, pair.ranks[0]))
    if "rate" in pair.between:
        rounds = [*zip(*(trace["validations"] for trace in pair.ranks), strict=False)]
        is_logged = any(any(each["values"] != values[0]["values"] for each in values) for values in rounds)
        return "sync_dist missing" if is_logged else "decided by rank"
    if part.step == 0:
        return "rate times world"
    ahead = [part.step * pair.world - 1 + offset for offset in (0, 1)]
    if any(at < len(alone) and near(shared[part.step][0], alone[at][0]) for at in ahead):
        return "schedule stepped per rank"
    moved = [abs(rates[part.step][0] - rates[0][0]) for rates in (alone, shared)]
    return "schedule too long" if moved[1] < moved[0] else "schedule stepped per rank"


RULES = {
    **{"parameters": of_parameters, "buffers": of_buffers, "loss": of_loss},
    **{"gradient": of_gradient, "applied": of_applied, "rate": of_rate},
}
