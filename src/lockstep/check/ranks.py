"""Questions about several ranks: what they read, compute, draw and log, against one process and each other."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

from lockstep.check.causes import Pair, cause_between, near, ratio_of
from lockstep.check.differences import LOGGED, ORDER, Part, Parted, apart, earliest, first, largest, relative, together
from lockstep.check.evidence import Evidence, answered, failed, finding_of
from lockstep.check.findings import Answer, Finding
from lockstep.check.questions import workers
from lockstep.check.sketches import DATASET, Trace

AMONG = tuple(name for name in ORDER if name not in ("samples", "loss"))
"""Quantities that ranks have in common."""
ANOTHER = "training is apart already"
OTHER_ORDER = "each step has other samples than in one process"
HANG = ("imed out", "Connection closed")
"""In the error of a rank that waits for a collective that others do not call."""


def layouts(evidence: Evidence) -> Iterator[Answer]:
    for world, legs in evidence.worlds.items():
        yield from (replace(answer, world=world) for answer in of_world(evidence, world, legs))


def of_world(evidence: Evidence, world: int, legs: Mapping[str, list[Trace]]) -> Iterator[Answer]:
    question, single = f"{world} ranks and one process", evidence.single
    if failure := failed(question, legs.get("plain")) or failed(question, legs.get("straight")):
        is_hang = any(word in failure.reason for word in HANG)
        finding = Finding("hang", facts=f"ranks wait for each other: {failure.reason}") if is_hang else None
        yield answered(question, 0.0, 0.0, finding, failure.reason)
        return
    if idle := [rank for rank, trace in enumerate(legs["straight"]) if not trace["steps"]]:
        facts = f"no step on {len(idle)} of {world} ranks"
        finding = finding_of("" if 0 in idle else "rank 0 alone", "batch", evidence.straight, 0, facts=facts)
        yield answered(question, math.inf, 0.0, finding)
        return
    yield divided(evidence, world, legs)
    is_aligned = not failed("", legs.get("aligned")) and not failed("", single.get("aligned", single["straight"]))
    leg = "aligned" if is_aligned else "straight"
    alone, ranks = single.get(leg, single["straight"])[0], legs[leg]
    trained = training(evidence, question, alone, ranks)
    if is_aligned and trained.finding is not None:
        trained = replace(trained, finding=replace(trained.finding, aligned=True))
    yield from (trained, drawn(evidence, world, legs["plain"]), logged(evidence, world, alone, ranks, trained))


def divided(evidence: Evidence, world: int, legs: Mapping[str, list[Trace]]) -> Answer:
    """Compare the samples of the ranks with those of one process."""
    question = f"samples of {world} ranks and one process"
    leg = "straight" if evidence.plain["facts"]["varies"] else "plain"
    alone, ranks = evidence.single[leg][0], legs[leg]
    facts, given = ranks[0]["facts"], alone["facts"]["order"]
    if facts["varies"]:
        return answered(question, 0.0, 0.0, None, evidence.varied)
    numbers = [sorted(rank["steps"][0]["samples"]) for rank in ranks]
    if all(each == numbers[0] for each in numbers) and {*alone["reading"]["samples"]} - {*numbers[0]}:
        return answered(question, math.inf, 0.0, finding_of("stream repeated on ranks", "samples", alone, 0))
    part = apart(alone, together(ranks), evidence.tolerance, ("samples",)).get("samples")
    if part is None:
        return answered(question, 0.0, 0.0, None)
    is_replaced, cause = facts["sampler"] != facts["sampler_given"], ""
    if is_replaced and given in ("sequential", "own"):
        cause = "padded samples counted" if padded(alone, ranks, part) else ""
        cause = cause or ("shuffled for ddp" if given == "sequential" else "sampler replaced")
        finding = finding_of(cause, "samples", alone, part.step)
        is_usual = finding.usual or (given == "own" and facts["shuffles"])
        return answered(question, math.inf, 0.0, replace(finding, usual=is_usual))
    several, none = uncovered(alone, ranks)
    if given != "drawn" and several + none > max(len(step["samples"]) for step in alone["steps"]):
        shown = (
            f"of the {len(alone['reading']['samples'])} samples of an epoch {several} come twice, and {none} to no rank"
        )
        cause = "order of each rank" if facts["shuffles"] else ""
        return answered(question, math.inf, 0.0, finding_of(cause, "samples", alone, part.step, facts=shown))
    if given in ("divided", "random") and padded(alone, ranks, part):
        return answered(question, math.inf, 0.0, finding_of("padded samples counted", "samples", alone, part.step))
    return answered(question, math.inf, 0.0, None, OTHER_ORDER)


def padded(alone: Trace, ranks: Sequence[Trace], part: Part) -> bool:
    """Whether the ranks have more samples than one process, at the end of an epoch."""
    counts = [sum(len(step["samples"]) for step in trace["steps"]) for trace in (alone, *ranks)]
    return sum(counts[1:]) > counts[0] and part.step == len(alone["steps"]) // 2 - 1


def uncovered(alone: Trace, ranks: Sequence[Trace]) -> tuple[int, int]:
    """Return how many samples of an epoch come too often to the ranks, and how many to none, as far as was read."""
    readings = [trace["reading"] for trace in (alone, *ranks)]
    once, *shares = (Counter(reading["samples"]) for reading in readings)
    shared: Counter[str] = sum(shares, Counter())
    if not once or max(once.values()) > 1 or not all(shares):
        return 0, 0
    several = sum(count - 1 for count in shared.values() if count > 1)
    none = sum((once - shared).values()) if all(reading["complete"] for reading in readings) else 0
    return (several, none) if none < len(once) else (0, 0)


def training(evidence: Evidence, question: str, alone: Trace, ranks: Sequence[Trace]) -> Answer:
    """Compare each step of the ranks with that of one process, and with each other."""
    joined, tolerance = together(ranks), evidence.tolerance
    quantities, reason = [name for name in ORDER if name != "samples"], evidence.draws
    if len(joined["steps"][0]["samples"]) != len(alone["steps"][0]["samples"]):
        reason, quantities = "a global batch has another size on several ranks, whatever batch_size is", []
    elif not reason and apart(alone, joined, tolerance, ("samples",)):
        reason = OTHER_ORDER
    if reason:
        is_as_long = len(joined["steps"]) == len(alone["steps"])
        quantities = [name for name in quantities if name == "rate" and is_as_long]
    between = earliest(*(apart(ranks[0], rank, tolerance, AMONG) for rank in ranks[1:]))
    parted = earliest(apart(alone, joined, tolerance, quantities, in_order=False), between)
    difference = largest(alone, joined, quantities, in_order=False)
    if not parted:
        return answered(question, difference, evidence.last, None, reason)
    quantity = first(parted)
    part = parted[quantity]
    pair = Pair(alone, ranks, between, evidence.coupling)
    cause = cause_between(pair, quantity, part)
    layer = evidence.coupling.get("layer", "") if quantity == "loss" else ""
    more: dict[str, Any] = {"where": layer or part.names[0], "ranks": apart_ranks(between, quantity, part)}
    if quantity in ("loss", "gradient", "applied"):
        more["ratio"] = ratio_of(*(each[min(part.step, len(each) - 1)] for each in (alone["steps"], ranks[0]["steps"])))
    if cause == "rate times world":
        rates = [trace["steps"][0]["rate"][0] for trace in (ranks[0], alone)]
        more["usual"] = any(near(rates[0] / (rates[1] or math.inf), len(ranks) ** power) for power in (1, 0.5))
    finding = finding_of(cause, quantity, alone, part.step, **more)
    return answered(question, part.difference, tolerance(quantity, part.step), finding)


def apart_ranks(between: Parted, quantity: str, part: Part) -> str:
    """Return whether the ranks have parted from each other, in words."""
    if quantity in between and between[quantity].step <= part.step:
        return "ranks part from each other"
    return "all ranks alike" if quantity in AMONG else ""


def drawn(evidence: Evidence, world: int, ranks: Sequence[Trace]) -> Answer:
    question, in_workers = f"random numbers of {world} ranks", evidence.single.get("workers")
    is_copied = not failed("", in_workers) and workers(evidence, "", in_workers[0]).verdict == "apart"  # type: ignore[index]
    for number, steps in enumerate(zip(*(rank["steps"] for rank in ranks), strict=False)):
        for name in sorted(
            {*chain(*(step["drew"] for step in steps)), *([] if is_copied else drawn_by_data(ranks[0], number))}
        ):
            if len({step["random"].get(name, rank) for rank, step in enumerate(steps)}) == 1:
                return answered(question, math.inf, 0.0, finding_of("equal seeds", "random", ranks[0], number, name))
    return answered(question, 0.0, 0.0, None)


def drawn_by_data(trace: Trace, number: int) -> list[str]:
    """Return the generators of the dataset that are in another state at the next step."""
    in_workers = trace["facts"].get("workers")  # where each copy may be seeded
    states = [] if in_workers else [step["random"] for step in trace["steps"][number : number + 2]]
    return [
        name
        for one, other in pairwise(states)
        for name in one
        if name.startswith(DATASET) and one[name] != other.get(name)
    ]


def logged(evidence: Evidence, world: int, alone: Trace, ranks: Sequence[Trace], trained: Answer) -> Answer:
    """Compare what validations log: of the ranks with each other, and with one process."""
    question, again = f"validation on {world} ranks and one process", evidence.straight["again"]
    rounds = [*zip(alone["validations"], *(rank["validations"] for rank in ranks), strict=False)]
    is_apart = trained.verdict != "within" and trained.verdict != "identical"
    difference, reason = 0.0, ANOTHER if trained.finding else trained.reason
    for number, (single, *shared) in enumerate(rounds):
        for name in single["values"]:
            if len({each["values"].get(name, 0.0) for each in again}) > 1 or single["drew"]:
                reason = reason or "it draws random numbers, or logs what is another each time"
                continue
            values = [each["values"][name] for each in shared if name in each["values"]]
            among = max((relative(values[0], value) for value in values), default=0.0)
            distance = relative(single["values"][name], values[0]) if values else 0.0
            difference = max(difference, among, 0.0 if is_apart else distance)
            if difference > LOGGED:
                cause = "sync_dist missing" if among > LOGGED else cause_of_value(name, single, shared)
                finding = finding_of(cause, "validation", where=name, facts=f"validation {number + 1}")
                return answered(question, max(among, distance), LOGGED, finding)
    return answered(question, difference, LOGGED, None, reason if rounds else "no validation logs a value")


def cause_of_value(name: str, alone: dict[str, Any], shared: Sequence[dict[str, Any]]) -> str:
    samples = Counter(chain(*(each["samples"] for each in shared)))
    if sum(samples.values()) > len(alone["samples"]):
        return "padded samples counted"
    entries = [(value, size) for each in shared for key, value, size in each["logged"] if key == name]
    total = sum(size for _, size in entries)
    exact = sum(value * size for value, size in entries) / total if total else math.nan
    value, values = alone["values"][name], [each for each, _ in entries]
    if relative(exact, value) < LOGGED:
        return "weights rounded down"
    return "score of a share" if values and not (total and min(values) <= value <= max(values)) else "mean of means"
