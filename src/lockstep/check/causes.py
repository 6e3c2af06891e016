"""The likely cause of a difference, from what parts first and how: rules of mechanisms."""

import math
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from lockstep.check.differences import Part, Parted, distances
from lockstep.check.probe import Trace

CAUSES: dict[str, dict[str, str]] = tomllib.loads((Path(__file__).parent / "causes.toml").read_text())
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
    norms = [math.hypot(*(values[0] for values in step[quantity].values())) for step in (one, other)]
    return norms[1] / norms[0] if norms[0] and all(map(math.isfinite, norms)) else None


def near(value: float | None, expected: float) -> bool:
    return value is not None and abs(value / expected - 1) < 1e-4


def cause_between(pair: Pair, quantity: str, part: Part) -> str:
    """Return the name of the cause, or an empty text if no rule fits."""
    return RULES[quantity](pair, part) if quantity in RULES else ""


def of_samples(pair: Pair, part: Part) -> str:
    facts, ranks = pair.ranks[0]["facts"], pair.ranks
    if repeated_on_ranks(ranks):
        return "stream repeated on ranks"
    if facts["sampler"] != facts.get("sampler_given"):
        counts = [Counter(chain(*(step["samples"] for step in trace["steps"]))) for trace in ranks]
        alone = Counter(chain(*(step["samples"] for step in pair.single["steps"])))
        padded = sum(sum(count.values()) for count in counts) > sum(alone.values())
        if padded and part.step == len(pair.single["steps"]) // 2 - 1:
            return "padded samples counted"
        return {"sequential": "shuffled for ddp", "own": "sampler replaced"}.get(facts.get("order"), "")
    return ""


def repeated_on_ranks(ranks: Sequence[Trace]) -> bool:
    """Whether all ranks have the same samples at the first step."""
    first = [sorted(trace["steps"][0]["samples"]) for trace in ranks]
    return all(samples == first[0] for samples in first)


def of_buffers(pair: Pair, part: Part) -> str:
    owners = {name.rpartition(".")[0] for name in part.names}
    return "BatchNorm per rank" if owners <= {*pair.single["facts"]["norms"]} else "local buffer update"


def of_parameters(pair: Pair, part: Part) -> str:
    if part.step == 0:
        return "other initial weights"
    states = [[trace["steps"][0], [*trace["steps"], trace["end"]][part.step]] for trace in pair.ranks]
    moved = [any(distances(*(each["parameters"] for each in pairs))[name] for name in part.names) for pairs in states]
    if moved[0] and not any(moved[1:]):
        return "rank 0 alone"
    return "" if {*part.names} & {*pair.single["facts"]["trainable"]} else "local state update"


def of_loss(pair: Pair, part: Part) -> str:
    alone, shared = pair.single["steps"][part.step], [trace["steps"][part.step] for trace in pair.ranks]
    kind = pair.coupling.get("coupling")
    if part.step > 0:
        if alone["unregistered"]:
            return "layer not registered"
        if any(value for step in shared for value in distances(alone["hidden"], step["hidden"]).values()):
            return "state in attribute"
    if alone["backwards"] != shared[0]["backwards"]:
        return "micro-batches not divided"
    named = {"layer": "BatchNorm per rank", "summed": "loss is summed", "term": "term per batch"}
    named |= {"weighted": "mean of means", "across": "loss across samples"}
    if kind in named:
        return named[kind]
    if kind is None and near(sum(step["loss"] for step in shared) / pair.world / (alone["loss"] or 1), 1 / pair.world):
        return "loss is summed"
    return "mean of means" if len({sum(step["sizes"]) for step in shared}) > 1 else ""


def of_gradient(pair: Pair, part: Part) -> str:
    alone, shared = pair.single["steps"][part.step], [trace["steps"][part.step] for trace in pair.ranks]
    ratio = ratio_of(alone, shared[0])
    if "gradient" in pair.between and pair.between["gradient"].step <= part.step:
        names = {*pair.between["gradient"].names}
        if names <= {*shared[0]["unfrozen"]}:
            return "unfrozen after wrapping"
        return "manual_backward not called" if not alone["backwards"] else ""
    if near(ratio, pair.world):
        is_right = "reduced" in alone and near(ratio_of(alone, shared[0], "reduced"), 1)
        return "gradients reduced twice" if is_right else "sum, not mean"
    if shared[0]["hooked"]:
        return "clipped before reduction"
    if near(ratio, 1 / pair.world):
        return "reduced outside autograd"
    return "gather without gradient" if any("gather" in call for call in shared[0]["calls"]) else ""


def of_rate(pair: Pair, part: Part) -> str:
    if "rate" in pair.between:
        return "sync_dist missing"
    return "rate times world" if part.step == 0 else "schedule stepped per rank"


RULES = {
    **{"samples": of_samples, "parameters": of_parameters, "buffers": of_buffers},
    **{"loss": of_loss, "gradient": of_gradient, "rate": of_rate},
}
