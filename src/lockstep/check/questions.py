"""What is asked of the legs in one process: epochs, workers, accumulation, resume, validation, and the source."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lockstep.check.differences import (
    LOGGED,
    ORDER,
    Part,
    Parted,
    after,
    apart,
    distances,
    earliest,
    first,
    largest,
    relative,
)
from lockstep.check.evidence import STATE, Evidence, answered, failed, finding_of, samples_of
from lockstep.check.findings import Answer, Finding
from lockstep.check.sketches import Trace

WHOLE = "a batch is computed as a whole, or changes a state: its halves are another computation"


def answers(evidence: Evidence) -> Iterator[Answer]:
    """Yield the answers to all questions about a stock Trainer in one process, and about a resume."""
    for values in evidence.single.get("source", [{"findings": []}])[0]["findings"]:
        yield Answer("the source", "apart", finding=Finding(**values))
    for question, (leg, judged) in QUESTIONS.items():
        traces = evidence.single.get(leg)
        yield failed(question, traces) or judged(evidence, question, traces[0])  # type: ignore[index]
    yield from resumed(evidence)


def epochs(evidence: Evidence, question: str, plain: Trace) -> Answer:
    orders = [samples_of(plain, epoch) for epoch in (0, 1)]
    is_apart = plain["facts"]["shuffles"] and orders[0] == orders[1] and len({*orders[0]}) > 1
    finding = finding_of("set_epoch not called", "samples", plain, len(plain["steps"]) // 2)
    return answered(question, 0.0, 0.0, finding if is_apart else None)


def workers(evidence: Evidence, question: str, trace: Trace) -> Answer:
    if not trace["facts"].get("workers"):
        return Answer(question, "undecided", reason="the loader of training has no workers")
    epochs, without = ([samples_of(each, epoch) for epoch in (0, 1)] for each in (trace, evidence.plain))
    cause, is_new = "", not {*without[0]} & {*without[1]}
    for epoch in (0, 1):
        most = max(Counter(without[epoch]).values(), default=1)
        if max(Counter(epochs[epoch]).values(), default=0) > most:
            cause = "workers draw alike" if is_new else "stream repeated in workers"
    if not cause and is_new and {*epochs[0]} & {*epochs[1]} and Counter(epochs[0]) == Counter(epochs[1]):
        cause = "worker seeds repeated"
    return answered(question, 0.0, 0.0, finding_of(cause, "samples", trace, 0) if cause else None)


def accumulation(evidence: Evidence, question: str, other: Trace) -> Answer:
    alone, quantities = evidence.straight, [name for name in ORDER if name != "batch"]
    parted = apart(alone, other, evidence.tolerance, quantities)
    if not parted or evidence.draws:
        return answered(question, largest(alone, other, quantities), evidence.last, None, evidence.draws)
    quantity, cause = first(parted), ""
    part = parted[quantity]
    sizes = [sum(step["sizes"]) for step in alone["steps"]]
    if quantity == "loss" and part.step < len(sizes) and 0 < sizes[part.step] < sizes[0]:
        cause = "ragged accumulation"
    elif any(step.get("changed") for step in other["steps"][: part.step + 1]):
        cause = "clipped each batch"
    finding = finding_of(cause, quantity, other, part.step)
    limit = evidence.tolerance(quantity, part.step)
    return answered(question, part.difference, limit, finding if cause else None, WHOLE)


def resumed(evidence: Evidence) -> Iterator[Answer]:
    is_right = False
    for world, legs in {1: evidence.single, **evidence.worlds}.items():
        question = f"a run of {world} rank{'s' * (world > 1)} and one that is resumed"
        failure = failed(question, legs.get("half")) or failed(question, legs.get("resumed"))
        if failure:
            yield failure
            continue
        begin, parted, difference = len(legs["half"][0]["steps"]), list[Parted](), 0.0
        quantities = STATE if evidence.draws else [name for name in ORDER if name != "batch"]
        for straight, rest in zip(legs["straight"], legs["resumed"], strict=True):
            one, other = after(straight, begin), rest
            if quantities == STATE:
                one, other = ({**each, "steps": each["steps"][:1], "end": {}} for each in (one, other))
            parted.append(apart(one, other, evidence.tolerance, quantities))
            difference = max(difference, largest(one, other, quantities))
        merged, reason = earliest(*parted), evidence.draws
        if merged and first(merged) == "samples":  # from which all but the state that was loaded follows
            reason = "the order of samples after a resume is another: nothing restores the state of its sampler"
            merged = {name: part for name, part in merged.items() if name in STATE and part.step == 0}
        if not merged:
            is_right = is_right or world == 1
            yield answered(question, difference, evidence.last, None, reason)
            continue
        quantity = first(merged)
        part = merged[quantity]
        cause, where = cause_of_resume(legs, begin, quantity, part, world > 1 and is_right)
        finding = finding_of(cause, quantity, legs["straight"][0], begin + part.step, where)
        yield answered(question, part.difference, evidence.tolerance(quantity, part.step), finding, world=world)


def cause_of_resume(
    legs: Mapping[str, list[Trace]], begin: int, quantity: str, part: Part, is_right_alone: bool
) -> tuple[str, str]:
    """Return the cause of a difference after a resume, and the tensor or attribute."""
    if quantity == "optimizer":
        return "optimizer not restored", part.names[0]
    if quantity in STATE and part.step == 0:
        return "state not restored", part.names[0]
    for straight, rest in zip(legs["straight"], legs["resumed"], strict=True):
        states = [trace["steps"][step]["hidden"] for trace, step in ((straight, begin), (rest, 0))]
        for name, difference in distances(*states).items():
            if difference and is_right_alone:
                return "rank 0's shard saved", name
            if difference:
                return "optimizer of its own" if name.endswith("(optimizer)") else "attribute not saved", name
    return "", part.names[0]


def validation(evidence: Evidence, question: str, other: Trace) -> Answer:
    plain, finding = evidence.plain, None
    if parted := apart(plain, other, evidence.tolerance):
        quantity = first(parted)
        drew = any(each["drew"] for each in plain["validations"])
        cause = "eval not called" if quantity in STATE else "validation draws" if drew else ""
        finding = finding_of(cause, quantity, plain, parted[quantity].step, parted[quantity].names[0])
    return answered(question, largest(plain, other), evidence.last, finding)


def twice(evidence: Evidence, question: str, straight: Trace) -> Answer:
    rounds = straight["again"]
    if reason := incomparable(rounds):
        return Answer(question, "undecided", reason=reason)
    values = [each["values"] for each in rounds]
    pairs = {name: relative(value, values[1].get(name, math.nan)) for name, value in values[0].items()}
    name, finding = max(pairs, key=lambda each: pairs[each]), None
    changed = any(max(distances(*(each["state"][part] for each in rounds)).values(), default=0) for part in STATE)
    if pairs[name] > LOGGED and (changed or any(distances(*(each["hidden"] for each in rounds)).values())):
        finding = finding_of("eval not called" if changed else "", "validation", where=name)
    reason = f"{name} is another each time, and no state of the module is" if pairs[name] > LOGGED else ""
    return answered(question, pairs[name], LOGGED, finding, reason)


def incomparable(rounds: Sequence[dict[str, Any]]) -> str:
    """Return why two validations cannot be compared, or an empty text."""
    if len(rounds) < 2 or not rounds[0]["values"]:
        return "no validation logs a value"
    if rounds[0]["samples"] != rounds[1]["samples"]:
        return "setup has split the samples anew"
    return "validation draws random numbers" if any(each["drew"] for each in rounds) else ""


QUESTIONS = {
    "the order of two epochs": ("plain", epochs),
    "two workers and none": ("workers", workers),
    "one batch and two accumulated halves": ("accumulated", accumulation),
    "training with and without validation": ("unvalidated", validation),
    "one validation and a second": ("straight", twice),
}
"""The leg that must not have failed, and the judge."""
