"""The questions about a stock Trainer in one process: epochs, workers, accumulation, resume, validation, the source."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lockstep.check.causes import CAUSES, cause_of_resume
from lockstep.check.comparison import LIMIT, ORDER, STATE, Comparison, Results, Tolerance, Trace, compare
from lockstep.check.report import Answer, Finding, Verdict

WHOLE = "a batch is computed as a whole, or changes a state: its halves are another computation"
FAILED = "a training that it needs fails in a stock Trainer"
QUANTITIES = [name for name in ORDER if name != "batch"]


@dataclass(frozen=True)
class Evidence:
    """The traces of one process, those of several ranks by their number, and how much they may differ."""

    single: Results
    worlds: dict[int, Results]
    tolerance: Tolerance

    @property
    def straight(self) -> Trace:
        return self.single["straight"][0]

    @property
    def plain(self) -> Trace:
        return self.single["plain"][0]

    def agreed(self, comparison: Comparison, reason: str = "") -> Answer:
        """Return the answer where no gap was seen: undecided with a reason, or if rounding moves the first step."""
        steps = range(1, len(self.straight["steps"]) + 1)
        step = next((step for step in steps if self.tolerance("parameters", step) == math.inf), 0)
        answer = answered(comparison.largest, min(self.tolerance("gradient", 10**6), LIMIT), None, reason)
        if reason or not step or not comparison.skipped:
            return answer
        limit = f"from step {step} on rounding alone moves the weights by more than {LIMIT * 100:g} %"
        return replace(answer, verdict="undecided" if step == 1 else "within", reason=limit)

    @property
    def varied(self) -> str:
        varies: bool = self.straight["facts"]["varies"]
        return "the data is another whenever it is read: it has a generator of its own, or collate_fn draws" * varies

    @property
    def differs(self) -> bool:
        """Whether N ranks rightly differ from one process: they draw other numbers, or normalise by their shares."""
        facts = self.plain["facts"]
        return facts["varies"] or bool(facts["norms"]) or any(step["drew"] for step in self.plain["steps"])

    @property
    def draws(self) -> str:
        """Return why the steps of two layouts cannot be compared, if they draw random numbers."""
        names = sorted({name for step in self.straight["steps"] for name in step["drew"]})
        drawn = f"training_step draws random numbers that depend on the layout ({', '.join(names)})"
        return drawn if names else self.varied


def answered(difference: float, tolerance: float, finding: Finding | None = None, reason: str = "") -> Answer:
    """Return an answer without its question: apart or noted with a finding, undecided with a reason."""
    verdict: Verdict = "undecided" if reason else "within" if difference else "identical"
    if finding is not None:
        verdict, reason = "noted" if finding.usual else "apart", ""
    return Answer("", verdict, difference, tolerance, finding, reason)


def finding_of(cause: str, quantity: str, trace: Trace, step: int, **more: Any) -> Finding:
    """Return a finding at a step of a trace, which counts them from 0; a state is that before the step."""
    number, steps = step + (quantity not in STATE), trace["steps"]
    epoch = steps[min(max(number - 1, 0), len(steps) - 1)]["epoch"] + 1
    return Finding(quantity, epoch, number, **{**CAUSES.get(cause, {}), **more})


def failed(*needed: Sequence[Trace] | None) -> Answer | None:
    """Return the answer to a question if a training that it needs has failed or is missing."""
    for trace in (trace for traces in needed for trace in traces or () if "error" in trace):
        reason, error = trace.get("reason", FAILED), trace["error"]
        return Answer("", "undecided" if error else "not applicable", reason=reason, error=error)
    return None if all(needed) else Answer("", "not applicable", reason="there is nothing to compare")


def samples_of(trace: Trace, epoch: int) -> list[str]:
    return [sample for step in trace["steps"] if step["epoch"] == epoch for sample in step["samples"]]


def answers_alone(evidence: Evidence) -> Iterator[Answer]:
    """Yield the answers to all questions about a stock Trainer in one process, and about a resume."""
    for values in evidence.single.get("source", [{"findings": []}])[0]["findings"]:
        yield Answer("the source", "apart", finding=Finding(**values))
    for question, (training, judge) in QUESTIONS.items():
        traces = evidence.single.get(training)
        yield replace(failed(traces) or judge(evidence, traces[0]), question=question)  # type: ignore[index]
    right_alone = False
    for world, results in {1: evidence.single, **evidence.worlds}.items():
        answer = resumed(evidence, results, right_alone)
        right_alone = right_alone or (world == 1 and answer.verdict in ("identical", "within"))
        question = f"a run of {world} rank{'s' * (world > 1)} and one that is resumed"
        yield replace(answer, question=question, world=world)


def epochs(evidence: Evidence, plain: Trace) -> Answer:
    orders = [samples_of(plain, epoch) for epoch in (0, 1)]
    is_apart = plain["facts"]["shuffles"] and orders[0] == orders[1] and len({*orders[0]}) > 1
    finding = finding_of("set_epoch not called", "samples", plain, len(plain["steps"]) // 2)
    return answered(0.0, 0.0, finding if is_apart else None)


def workers(evidence: Evidence, trace: Trace) -> Answer:
    if not trace["facts"].get("workers"):
        return Answer("", "not applicable", reason="the loader of training has no workers")
    (once, again), without = ([Counter(samples_of(each, n)) for n in (0, 1)] for each in (trace, evidence.plain))
    cause, is_new = "", not {*without[0]} & {*without[1]}
    most = [max(each.values(), default=1) for each in (once, again, *without)]
    if most[0] > most[2] or most[1] > most[3]:
        cause = "workers draw alike" if is_new else "stream repeated in workers"
    elif is_new and once == again and once:
        cause = "worker seeds repeated"
    return answered(0.0, 0.0, finding_of(cause, "samples", trace, 0) if cause else None)


def accumulation(evidence: Evidence, other: Trace) -> Answer:
    comparison, cause = compare([(evidence.straight, other)], evidence.tolerance, QUANTITIES), ""
    gap, sizes = comparison.first, [sum(step["sizes"]) for step in evidence.straight["steps"]]
    if gap is None or evidence.draws:
        return evidence.agreed(comparison, evidence.draws)
    if gap.quantity == "loss" and gap.step < len(sizes) and 0 < sizes[gap.step] < sizes[0]:
        cause = "ragged accumulation"
    elif any(step.get("changed") for step in other["steps"][: gap.step + 1]):
        cause = "clipped each batch"
    finding = finding_of(cause, gap.quantity, other, gap.step) if cause else None
    return answered(gap.difference, gap.tolerance, finding, WHOLE)


def resumed(evidence: Evidence, results: Results, is_right_alone: bool) -> Answer:
    """Compare the second epoch of a run with that of one that is resumed after the first."""
    if failure := failed(results.get("half"), results.get("resumed")):
        return failure
    begin, reason, quantities = len(results["half"][0]["steps"]), evidence.draws, QUANTITIES
    ranks = zip(results["straight"], results["resumed"], strict=True)
    pairs = [({**straight, "steps": straight["steps"][begin:]}, rest) for straight, rest in ranks]
    if reason:  # only the state that was loaded can be compared
        first = [[{**trace, "steps": trace["steps"][:1], "end": {}} for trace in pair] for pair in pairs]
        pairs, quantities = [(one, other) for one, other in first], [*STATE]
    comparison = compare(pairs, evidence.tolerance, quantities)
    gap = comparison.first
    if gap and gap.quantity == "samples":  # from which all but the state that was loaded follows
        reason = "the order of samples after a resume is another: nothing restores the state of its sampler"
        states = (comparison.gaps[name] for name in STATE if name in comparison.gaps)
        gap = next((state for state in states if state.step == 0), None)
    if gap is None:
        return evidence.agreed(comparison, reason)
    cause, where = cause_of_resume(pairs, gap, is_right_alone)
    finding = finding_of(cause, gap.quantity, results["straight"][0], begin + gap.step, where=where)
    return answered(gap.difference, gap.tolerance, finding)


def validation(evidence: Evidence, other: Trace) -> Answer:
    plain = evidence.plain
    comparison = compare([(plain, other)], evidence.tolerance)
    if (gap := comparison.first) is None:
        return evidence.agreed(comparison)
    drew = any(each["drew"] for each in plain["validations"])
    cause = "eval not called" if gap.quantity in STATE else "validation draws" if drew else ""
    finding = finding_of(cause, gap.quantity, plain, gap.step, where=gap.names[0])
    return answered(gap.difference, gap.tolerance, finding)


QUESTIONS = {
    "the order of two epochs": ("plain", epochs),
    "two workers and none": ("workers", workers),
    "one batch and two accumulated halves": ("accumulated", accumulation),
    "training with and without validation": ("unvalidated", validation),
}
"""The training that must not have failed, and the judge."""
