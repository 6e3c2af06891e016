"""Questions about several ranks: what they compute, draw and log, against one process and each other."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from lockstep.check.causes import Pair, cause_between, ratio_of
from lockstep.check.differences import (
    LOGGED,
    ORDER,
    apart,
    earliest,
    first,
    largest,
    relative,
    together,
)
from lockstep.check.evidence import LAST, Evidence, answered, failed, finding_of, samples_of
from lockstep.check.findings import Answer
from lockstep.check.probe import Trace

ANOTHER = "training is apart already"


def layouts(evidence: Evidence) -> Iterator[Answer]:
    for world, legs in evidence.worlds.items():
        question = f"{world} ranks and one process"
        if failure := failed(question, legs.get("straight")):
            yield failure
            continue
        ranks = legs["straight"]
        if "aligned" in legs and not failed(question, legs["aligned"]):  # to go on, in the order of one process
            yield replace(training(evidence, f"samples of {question}", ranks, ("samples",)), world=world)
            ranks = legs["aligned"]
        trained = training(evidence, question, ranks)
        others = drawn(world, ranks), logged(evidence, world, ranks, trained.verdict == "apart")
        yield from (replace(answer, world=world) for answer in (trained, *others))


def training(evidence: Evidence, question: str, ranks: Sequence[Trace], quantities: Sequence[str] = ORDER) -> Answer:
    """Compare each step of the ranks with that of one process, and with each other."""
    quantities = [name for name in quantities if not (name == "samples" and evidence.varies)]
    among = [name for name in quantities if name not in ("samples", "loss")]
    if evidence.draws:
        quantities = [name for name in quantities if name in ("samples", "rate")]
    joined = together(ranks)
    between = earliest(*(apart(ranks[0], rank, evidence.tolerance, among) for rank in ranks[1:]))
    alone = apart(evidence.straight, joined, evidence.tolerance, quantities)
    parted = earliest(alone, between)
    difference = largest(evidence.straight, joined, quantities)
    if not parted:
        return answered(question, difference, evidence.tolerance("gradient", LAST), None, evidence.draws)
    quantity = first(parted)
    part = parted[quantity]
    if quantity == "samples" and other_order(evidence, ranks):
        reason = "each step has other samples than in one process, and each epoch the same"
        return answered(question, difference, 0.0, None, reason)
    cause = cause_between(Pair(evidence.straight, ranks, between, evidence.coupling), quantity, part)
    ratio = None
    if quantity in ("loss", "gradient"):
        ratio = ratio_of(evidence.straight["steps"][part.step], ranks[0]["steps"][part.step])
    where = "" if part.names in ((), ("",)) else part.names[0]
    where = evidence.coupling.get("layer", where) if quantity == "loss" else where
    finding = finding_of(question, cause, quantity, part.step, where, ratio)
    return answered(question, part.difference, evidence.tolerance(quantity, part.step), finding)


def other_order(evidence: Evidence, ranks: Sequence[Trace]) -> bool:
    """Whether the code itself divides the samples among ranks, and each epoch has each sample once."""
    facts = ranks[0]["facts"]
    if facts["sampler"] != facts.get("sampler_given"):
        return False
    return all(
        Counter(chain(*(samples_of(rank, epoch) for rank in ranks))) == Counter(samples_of(evidence.straight, epoch))
        for epoch in (0, 1)
    )


def drawn(world: int, ranks: Sequence[Trace]) -> Answer:
    question = f"random numbers of {world} ranks"
    for number, steps in enumerate(zip(*(rank["steps"] for rank in ranks), strict=False)):
        for name in {*chain(*(step["drew"] for step in steps))}:
            if len({step["random"].get(name) for step in steps}) == 1:
                return answered(question, math.inf, 0.0, finding_of(question, "equal seeds", "random", number, name))
    return answered(question, 0.0, 0.0, None)


def logged(evidence: Evidence, world: int, ranks: Sequence[Trace], is_apart: bool) -> Answer:
    """Compare what validations log: of the ranks with each other, and with one process."""
    question = f"validation on {world} ranks and one process"
    rounds = [*zip(evidence.straight["validations"], *(rank["validations"] for rank in ranks), strict=False)]
    difference = 0.0
    for number, (alone, *shared) in enumerate(rounds):
        for name in alone["values"]:
            values = [each["values"].get(name, math.nan) for each in shared]
            among = max(relative(values[0], value) for value in values)
            distance = relative(alone["values"][name], values[0])
            difference = max(difference, among, 0.0 if is_apart or evidence.draws else distance)
            if among > LOGGED:
                finding = finding_of(question, "sync_dist missing", "validation", number, name)
                return answered(question, among, LOGGED, finding)
            if difference > LOGGED:
                finding = finding_of(question, cause_of_value(name, alone, shared), "validation", number, name)
                return answered(question, distance, LOGGED, finding)
    reason = ANOTHER if is_apart else evidence.draws
    return answered(question, difference, LOGGED, None, reason if rounds else "no validation logs a value")


def cause_of_value(name: str, alone: dict[str, Any], shared: Sequence[dict[str, Any]]) -> str:
    samples = Counter(chain(*(each["samples"] for each in shared)))
    if sum(samples.values()) > len(alone["samples"]):
        return "padded samples counted"
    entries = [(value, size) for each in shared for key, value, size in each["logged"] if key == name]
    total = sum(size for _, size in entries)
    exact = sum(value * size for value, size in entries) / total if total else math.nan
    return "weights rounded down" if relative(exact, alone["values"][name]) < LOGGED else "mean of means"
