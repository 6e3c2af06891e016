"""The questions about several ranks: what they read, compute, draw and log, against one process and each other."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from lockstep.check.causes import CAUSES, Pair, cause_between, near, ratio_of
from lockstep.check.comparison import DATASET, ORDER, Gap, Results, Trace, compare, first_layer, first_of, relative
from lockstep.check.questions import Evidence, answered, answers_alone, epochs, failed, finding_of, workers
from lockstep.check.report import Answer, Finding

AMONG = tuple(name for name in ORDER if name not in ("samples", "loss"))
"""Quantities that ranks have in common."""
LOGGED = 2e-6
"""The tolerance of logged values (float32)."""
OTHER_ORDER = "each step has other samples than in one process"
HANG = ("imed out", "Connection closed")
"""In the error of a rank that waits for a collective that others do not call."""


def answers(evidence: Evidence) -> list[Answer]:
    """Return the answers to all questions about a stock Trainer."""
    known = [
        replace(answer, question=question, world=world)
        for world, results in evidence.worlds.items()
        for question, answer in of_world(evidence, world, results).items()
    ]
    return [*known, *answers_alone(evidence)]


def of_world(evidence: Evidence, world: int, results: Results) -> dict[str, Answer]:
    question, alone = f"{world} ranks and one process", evidence.straight
    if failure := failed(results.get("plain"), results.get("straight", [{}])):
        finding = Finding("hang", facts="ranks wait for each other")
        is_hang = any(word in failure.error for word in HANG)
        return {question: replace(failure, verdict="apart", finding=finding) if is_hang else failure}
    ranks = results["straight"]
    if idle := [rank for rank, trace in enumerate(ranks) if not trace["steps"]]:
        facts = f"no step on {len(idle)} of {world} ranks"
        finding = finding_of("" if 0 in idle else "rank 0 alone", "batch", alone, 0, facts=facts)
        return {question: answered(math.inf, 0.0, finding)}
    trained = training(evidence, alone, ranks)
    return {
        f"samples of {question}": divided(evidence, results),
        question: trained,
        f"the order of two epochs on {world} ranks": epochs(evidence, results["plain"][0]),
        f"random numbers of {world} ranks": drawn(evidence, results["plain"]),
        f"validation on {question}": logged(evidence, alone, ranks, trained),
    }


def together(ranks: Sequence[Trace]) -> Trace:
    """Return the trace of all ranks: their samples, the mean of their losses, and the rest of rank 0."""
    steps = []
    for shared in zip(*(rank["steps"] for rank in ranks), strict=False):
        samples, loss = chain(*(each["samples"] for each in shared)), sum(each["loss"] for each in shared) / len(shared)
        steps.append({**shared[0], "samples": [*samples], "loss": loss})
    return {**ranks[0], "steps": steps}


def divided(evidence: Evidence, results: Results) -> Answer:
    """Compare the samples of the ranks with those of one process."""
    name = "straight" if evidence.plain["facts"]["varies"] else "plain"
    alone, ranks = evidence.single[name][0], results[name]
    facts, given = ranks[0]["facts"], alone["facts"]["order"]
    if facts["varies"]:
        return answered(0.0, 0.0, None, evidence.varied)
    numbers = [sorted(rank["steps"][0]["samples"]) for rank in ranks]
    gap = compare([(alone, together(ranks))], evidence.tolerance, ("samples",)).gaps.get("samples")
    step, more = 0, dict[str, Any]()
    if all(each == numbers[0] for each in numbers) and {*alone["reading"]["samples"]} - {*numbers[0]}:
        cause = "stream repeated on ranks"
    elif gap is None:
        return answered(0.0, 0.0)
    else:
        step, (several, none) = gap.step, uncovered(alone, ranks)
        is_padded = padded(alone, ranks, gap)
        if facts["sampler"] != facts["sampler_given"] and given in ("sequential", "own"):
            cause = "shuffled for ddp" if given == "sequential" else "sampler replaced"
            more = {"usual": True} if given == "own" and facts["shuffles"] else {}
            cause = "padded samples counted" if is_padded else cause
        elif given != "drawn" and several + none > max(len(each["samples"]) for each in alone["steps"]):
            cause, count = "order of each rank" if facts["shuffles"] else "", len(alone["reading"]["samples"])
            more = {"facts": f"of the {count} samples of an epoch {several} come twice, and {none} to no rank"}
        elif given in ("divided", "random") and is_padded:
            cause = "padded samples counted"
        else:
            return answered(math.inf, 0.0, None, OTHER_ORDER)
    return answered(math.inf, 0.0, finding_of(cause, "samples", alone, step, **more))


def padded(alone: Trace, ranks: Sequence[Trace], gap: Gap) -> bool:
    """Whether the ranks have more samples than one process, at the end of an epoch."""
    counts = [sum(len(step["samples"]) for step in trace["steps"]) for trace in (alone, *ranks)]
    return sum(counts[1:]) > counts[0] and gap.step == len(alone["steps"]) // 2 - 1


def uncovered(alone: Trace, ranks: Sequence[Trace]) -> tuple[int, int]:
    """Return how many samples of an epoch come too often to the ranks, and how many to none, as far as was read."""
    readings = [trace["reading"] for trace in (alone, *ranks)]
    once, *shares = (Counter(reading["samples"]) for reading in readings)
    shared: Counter[str] = sum(shares, Counter())
    if not once or max(once.values()) > 1 or not all(shares):
        return 0, 0
    several = sum(count - 1 for count in shared.values())
    none = sum((once - shared).values()) if all(reading["complete"] for reading in readings) else 0
    return (several, none) if none < len(once) else (0, 0)


def training(evidence: Evidence, alone: Trace, ranks: Sequence[Trace]) -> Answer:
    """Compare each step of the ranks with that of one process, and with each other."""
    joined, tolerance = together(ranks), evidence.tolerance
    quantities, reason = [name for name in ORDER if name != "samples"], evidence.draws
    if len(joined["steps"][0]["samples"]) != len(alone["steps"][0]["samples"]):
        reason, quantities = "a global batch has another size on several ranks, whatever batch_size is", []
    elif not reason and compare([(alone, joined)], tolerance, ("samples",)).gaps:
        reason = OTHER_ORDER
    if reason:
        is_as_long = len(joined["steps"]) == len(alone["steps"])
        quantities = [name for name in quantities if name == "rate" and is_as_long]
    with_one = compare([(alone, joined)], tolerance, quantities, in_order=False)
    among = compare([(ranks[0], rank) for rank in ranks[1:]], tolerance, AMONG).gaps
    gap = first_of([*with_one.gaps.values(), *among.values()])
    if gap is None:
        return evidence.agreed(with_one, reason)
    kind = evidence.single.get("loss", [{}])[0].get("facts", {}).get("loss", "")
    pair, more = Pair(alone, ranks, among, kind), dict[str, Any](where=gap.names[0])
    if gap.quantity in ("loss", "gradient", "applied") and gap.step < pair.length:
        one, shared = pair.at(gap.step)
        more["ratio"] = ratio_of(one, shared[0])
        if gap.quantity != "applied" and not reason:
            where, layer = first_layer(one, shared, max(1e-9, tolerance("loss", gap.step)))
            beyond = "the loss itself" if gap.quantity == "loss" else "after the backward pass"
            more["where"] = where or (beyond if one["outputs"] else gap.names[0])
            pair = replace(pair, layer=layer)
    cause = cause_between(pair, gap)
    if pair.among(gap):
        more["ranks"] = "ranks differ from each other"
    elif gap.quantity in AMONG:
        more["ranks"] = "all ranks alike"
    if cause == "state in attribute":
        more["facts"] = ", ".join((pair.hidden(gap.step) or pair.hidden(gap.step + 1))[:3])
    if cause == "rate times world":
        rates = [trace["steps"][0]["rate"][0] for trace in (ranks[0], alone)]
        more["usual"] = any(near(rates[0] / (rates[1] or math.inf), len(ranks) ** power) for power in (1, 0.5))
    return answered(
        gap.difference,
        gap.tolerance,
        finding_of(cause, gap.quantity, alone, gap.step, **more),
    )


def drawn(evidence: Evidence, ranks: Sequence[Trace]) -> Answer:
    """Compare the generators that the steps of ranks, or their datasets, draw from: they have to differ."""
    in_workers = evidence.single.get("workers")
    copied = not failed(in_workers) and workers(evidence, in_workers[0]).finding is not None  # type: ignore[index]
    for number, steps in enumerate(zip(*(rank["steps"] for rank in ranks), strict=False)):
        names = {*chain(*(step["drew"] for step in steps)), *([] if copied else drawn_by_data(ranks[0], number))}
        for name in sorted(names):
            if len({step["random"].get(name, rank) for rank, step in enumerate(steps)}) == 1:
                return answered(math.inf, 0.0, finding_of("equal seeds", "random", ranks[0], number, where=name))
    return answered(0.0, 0.0)


def drawn_by_data(trace: Trace, number: int) -> list[str]:
    """Return the generators of the dataset that are in another state at the next step, without those of workers."""
    one, *later = (step["random"] for step in trace["steps"][number : number + 2])
    names = one if later and not trace["facts"].get("workers") else ()
    return [name for name in names if name.startswith(DATASET) and one[name] != later[0].get(name)]


def logged(evidence: Evidence, alone: Trace, ranks: Sequence[Trace], trained: Answer) -> Answer:
    """Compare what validations log: of the ranks with each other, and with one process."""
    again = evidence.straight["again"]
    rounds = [*zip(alone["validations"], *(rank["validations"] for rank in ranks), strict=False)]
    if not any(single["values"] for single, *_ in rounds):
        return Answer("", "not applicable", reason="no validation logs a value")
    is_apart = trained.verdict not in ("within", "identical") or bool(trained.reason)
    difference, reason = 0.0, "training is apart already" if trained.finding else trained.reason
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
                steers = "; ReduceLROnPlateau reads it, so ranks may have other rates"
                facts = f"validation {number + 1}{steers * (among > LOGGED and name in ranks[0]['facts']['monitors'])}"
                finding = Finding("validation", where=name, facts=facts, **CAUSES[cause])
                return answered(max(among, distance), LOGGED, finding)
    return answered(difference, LOGGED, None, reason)


def cause_of_value(name: str, alone: dict[str, Any], shared: Sequence[dict[str, Any]]) -> str:
    if sum(len(each["samples"]) for each in shared) > len(alone["samples"]):
        return "padded samples counted"
    entries = [(value, size) for each in shared for key, value, size in each["logged"] if key == name]
    total, value, values = sum(size for _, size in entries), alone["values"][name], [each for each, _ in entries]
    if total and relative(sum(value * size for value, size in entries) / total, value) < LOGGED:
        return "weights rounded down"
    return "score of a share" if values and not (total and min(values) <= value <= max(values)) else "mean of means"
