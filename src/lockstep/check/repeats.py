"""Questions about runs that must repeat another: epochs, workers, accumulation, resume and validation."""

import math
from collections import Counter
from collections.abc import Iterator

from lockstep.check.causes import ratio_of
from lockstep.check.differences import (
    LOGGED,
    ORDER,
    Part,
    Parted,
    after,
    apart,
    earliest,
    first,
    largest,
    relative,
)
from lockstep.check.evidence import LAST, STATE, Evidence, answered, failed, finding_of, samples_of
from lockstep.check.findings import Answer, Finding

WHOLE = "a batch is computed as a whole, or changes a state: its halves are another computation"


def source(evidence: Evidence) -> Iterator[Answer]:
    findings = [Finding(**values) for values in evidence.single.get("source", [{"findings": []}])[0]["findings"]]
    yield from (Answer(finding.question, "apart", finding=finding) for finding in findings)


def epochs(evidence: Evidence) -> Iterator[Answer]:
    question = "the order of two epochs"
    orders = [samples_of(evidence.straight, epoch) for epoch in (0, 1)]
    is_apart = evidence.straight["facts"].get("shuffles") and orders[0] == orders[1] and len({*orders[0]}) > 1
    finding = finding_of(question, "set_epoch not called", "samples", len(evidence.straight["steps"]) // 2)
    yield answered(question, 0.0, 0.0, finding if is_apart else None)


def workers(evidence: Evidence) -> Iterator[Answer]:
    question = "two workers and none"
    if failure := failed(question, evidence.single.get("workers")):
        yield failure
        return
    trace = evidence.single["workers"][0]
    if not trace["facts"].get("workers"):
        yield Answer(question, "undecided", reason="the loader of training has no workers")
        return
    epochs, without = ([samples_of(each, epoch) for epoch in (0, 1)] for each in (trace, evidence.straight))
    cause, is_new = "", not {*without[0]} & {*without[1]}
    for epoch in (0, 1):
        most = max(Counter(without[epoch]).values(), default=1)
        if max(Counter(epochs[epoch]).values(), default=0) > most:
            cause = "workers draw alike" if is_new else "stream repeated in workers"
    if not cause and is_new and {*epochs[0]} & {*epochs[1]} and Counter(epochs[0]) == Counter(epochs[1]):
        cause = "worker seeds repeated"
    yield answered(question, 0.0, 0.0, finding_of(question, cause, "samples", 0) if cause else None)


def accumulation(evidence: Evidence) -> Iterator[Answer]:
    question = "one batch and two accumulated halves"
    if failure := failed(question, evidence.single.get("accumulated")):
        yield failure
        return
    other = evidence.single["accumulated"][0]
    parted = apart(evidence.straight, other, evidence.tolerance)
    if not parted or evidence.draws:
        reason = evidence.draws
        yield answered(question, largest(evidence.straight, other), evidence.tolerance("gradient", LAST), None, reason)
        return
    quantity, cause = first(parted), ""
    part = parted[quantity]
    sizes = [sum(step["sizes"]) for step in evidence.straight["steps"]]
    if quantity == "loss" and part.step > 0 and sizes[part.step] != sizes[0]:
        cause = "mean of means"
    elif quantity == "gradient":
        cause = "clipped each batch"
    reason = "" if cause or quantity == "rate" else WHOLE
    step = evidence.straight["steps"][min(part.step, len(sizes) - 1)]
    ratio = ratio_of(step, other["steps"][part.step]) if part.step < len(other["steps"]) else None
    finding = finding_of(question, cause, quantity, part.step, "", ratio)
    limit = evidence.tolerance(quantity, part.step)
    yield answered(question, part.difference, limit, None if reason else finding, reason)


def resumed(evidence: Evidence) -> Iterator[Answer]:
    is_right = False
    for world, legs in {1: evidence.single, **evidence.worlds}.items():
        question = f"a run of {world} rank{'s' * (world > 1)} and one that is resumed"
        failure = failed(question, legs.get("half")) or failed(question, legs.get("resumed"))
        if failure:
            yield failure
            continue
        begin, parted, difference = len(legs["half"][0]["steps"]), list[Parted](), 0.0
        quantities = STATE if evidence.draws else ORDER
        for straight, rest in zip(legs["straight"], legs["resumed"], strict=True):
            pair = after(straight, begin), rest
            if quantities == STATE:
                pair = tuple({**each, "steps": each["steps"][:1], "end": {}} for each in pair)  # type: ignore[assignment]
            parted.append(apart(*pair, evidence.tolerance, quantities))
            difference = max(difference, largest(*pair, quantities))
        merged = earliest(*parted)
        if not merged:
            is_right = is_right or world == 1
            reason = evidence.draws
            yield answered(question, difference, evidence.tolerance("gradient", LAST), None, reason)
            continue
        quantity = first(merged)
        part = merged[quantity]
        cause = cause_of_resume(quantity, part, world > 1 and is_right)
        finding = finding_of(question, cause, quantity, begin + part.step, part.names[0])
        yield answered(question, part.difference, evidence.tolerance(quantity, part.step), finding)


def validation(evidence: Evidence) -> Iterator[Answer]:
    question = "training with and without validation"
    if failure := failed(question, evidence.single.get("unvalidated")):
        yield failure
        return
    other = evidence.single["unvalidated"][0]
    parted, finding = apart(evidence.straight, other, evidence.tolerance), None
    if parted:
        quantity = first(parted)
        drew = any(each["drew"] for each in evidence.straight["validations"])
        cause = "eval not called" if quantity in STATE else "validation draws" if drew else ""
        finding = finding_of(question, cause, quantity, parted[quantity].step, parted[quantity].names[0])
    yield answered(question, largest(evidence.straight, other), evidence.tolerance("gradient", LAST), finding)


def twice(evidence: Evidence) -> Iterator[Answer]:
    question, rounds = "one validation and a second", evidence.straight.get("again", [])
    if len(rounds) < 2 or not rounds[0]["values"]:
        yield Answer(question, "undecided", reason="no validation logs a value")
        return
    if rounds[0]["samples"] != rounds[1]["samples"]:
        yield Answer(question, "undecided", reason="setup has split the samples anew")
        return
    pairs = {
        name: relative(value, rounds[1]["values"].get(name, math.nan)) for name, value in rounds[0]["values"].items()
    }
    name = max(pairs, key=lambda each: pairs[each])
    drew = any(each["drew"] for each in rounds)
    finding = finding_of(question, "eval not called", "validation", None, name)
    is_apart = pairs[name] > LOGGED
    reason = "validation draws random numbers" if is_apart else ""
    yield answered(question, pairs[name], LOGGED, finding if is_apart and not drew else None, reason)


def cause_of_resume(quantity: str, part: Part, is_right_alone: bool) -> str:
    """Return the cause of a difference after a resume."""
    if quantity == "optimizer":
        return "optimizer not restored"
    if quantity == "loss" and part.step == 0:
        return "rank 0's shard saved" if is_right_alone else "attribute not saved"
    return ""


QUESTIONS = (source, epochs, workers, accumulation, resumed, validation, twice)
