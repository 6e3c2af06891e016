"""`python -m lockstep.check`: planted bugs are found and named, correct twins and built-in nets raise no alarm."""

import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.distributed import is_initialized
from torch.testing._internal.two_tensor import TwoTensor

import lockstep
from lockstep.check.causes import CAUSES
from lockstep.check.comparison import Results, Subject, compare, distances, first_layer, measured
from lockstep.check.lockstep_runs import settled
from lockstep.check.noise import Noise
from lockstep.check.questions import Evidence
from lockstep.check.ranks import answers
from lockstep.check.report import Answer, Finding, Progress, Report
from lockstep.check.sketches import sketch, sums
from lockstep.check.source import look
from lockstep.check.trainings import traces_of
from tests.conftest import IN_PROCESS, ROOT
from tests.silent_bugs.base import Regression
from tests.silent_bugs.cases import CASES, DATA, Case, locate
from tests.silent_bugs.two_ranks import two_ranks
from tests.test_check_source import CAUSES as SOURCE_CAUSES

pytestmark = IN_PROCESS
RUNNABLE = [case for case in CASES if case.kind != "script" and case.layout != "source"]
BY_NAME = {case.name: case for case in CASES}
SHOWING = {
    **{"accumulation": ["accumulated"], "resume": ["half"], "resume ddp": ["half"], "validation": ["unvalidated"]},
    **{"workers": ["workers"], "workers, epochs": ["workers"]},
}
"""The trainings that a mistake needs to show, by its layout, beside those of all."""
Measured = dict[tuple[str, bool], Results]


def subject_of(case: Case, correct: bool) -> Subject:
    path = case.twin if correct else case.module
    model, data = (path if case.kind == kind else getattr(case, kind) for kind in ("model", "data"))
    return Subject({"_target_": model}, {"_target_": data, **case.arguments}, batch_size=8)


def answers_of(single: Results, ranks: Results | None = None) -> list[Answer]:
    tolerance = measured(single["straight"][0], single["moved"][0], "64-true")
    evidence = Evidence(single, {2: ranks} if ranks else {}, tolerance)
    return answers(evidence)


def apart(found: list[Answer]) -> list[Answer]:
    """Return what is apart, and behind it what is noted."""
    return [answer for verdict in ("apart", "noted") for answer in found if answer.verdict == verdict]


def test_a_planted_bug_is_found_and_its_twin_raises_no_alarm(tmp_path: Path) -> None:
    first, *_ = apart(answers_of(traces_of(subject_of(BY_NAME["SlimCheckpoint"], False), tmp_path, 0)))
    assert first.finding is not None
    assert (first.finding.quantity, first.finding.epoch, first.finding.step) == ("optimizer", 1, 4)
    assert first.finding.cause == CAUSES["optimizer not restored"]["cause"]
    assert not apart(answers_of(traces_of(subject_of(BY_NAME["SlimCheckpoint"], True), tmp_path, 1)))


def trace_of(norms: list[float]) -> dict[str, Any]:
    """Return a trace with these norms of a weight: before each step, and at the end."""
    *states, end = ({"parameters": {"weight": [norm] * 3}} for norm in norms)
    return {"steps": states, "end": end}


@pytest.mark.parametrize(
    ("moved", "ranks", "verdict", "reason"),
    [
        ([1, 1, 1, 1.1], [1, 1, 1, 1.5], "within", "from step 3"),
        ([1, 1, 1, 1.1], [1, 1, 1, 1], "identical", ""),
        ([1, 1, 1, 1.1], [1, 1, 1.01, 1.5], "apart", ""),
        ([1, 1.1, 2, 3], [1, 1.5, 2, 3], "undecided", "from step 1"),
        ([1, 1, 1, 1], [1, 1, 1, 1.5], "apart", ""),
    ],
)
def test_a_training_is_compared_until_rounding_alone_moves_it(
    moved: list[float], ranks: list[float], verdict: str, reason: str
) -> None:
    straight = trace_of([1, 1, 1, 1])
    evidence = Evidence({"straight": [straight]}, {}, measured(straight, trace_of(moved), "64-true"))
    comparison = compare([(straight, trace_of(ranks))], evidence.tolerance, ["parameters"])
    answer = evidence.agreed(comparison)
    shown = ("apart", "") if comparison.first else (answer.verdict, answer.reason)
    assert shown == (verdict, reason and f"{reason} on rounding alone moves the weights by more than 0.1 %")


def test_a_subclass_of_tensor_is_measured_by_its_own_dispatch() -> None:
    plain = torch.arange(6.0).reshape(3, 2)
    assert (sketch([("", TwoTensor(plain, plain))]), sums(TwoTensor(plain, plain))) == (
        sketch([("", plain)]),
        sums(plain),
    )


def test_every_cause_has_a_case() -> None:
    assert {*CAUSES} == {case.cause for case in RUNNABLE if case.cause in CAUSES}


def measure(folder: Path) -> Measured:
    """Run all trainings of all twins in this world, and of the mistakes those in which they show.

    Workers read the same of the shared data, whatever the module: the quick test of a twin has them.
    """
    measured: Measured = {}
    for number, (case, correct) in enumerate(product(RUNNABLE, (False, True))):
        without = {"workers"} if case.data == DATA else set()
        if not correct:
            if is_initialized() and case.layout not in ("ddp", "noise", "resume ddp"):
                continue
            without = {"half", "accumulated", "workers", "unvalidated"} - {*SHOWING.get(case.layout, ())}
        measured[case.name, correct] = traces_of(subject_of(case, correct), folder, number, [*without])
    return measured


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], list[Answer]]:
    """The answers about all cases, whose ranks are started once."""
    folder = tmp_path_factory.mktemp("corpus")
    with two_ranks(measure, folder) as results:
        single = measure(folder)
        shared: Measured = results()[0]
    return {key: answers_of(single[key], shared.get(key)) for key in single}


def row_of(case: Case, finding: Finding | None) -> str:
    """Return the line of docs/check.md about a case."""
    if finding is None:
        return f"| `{case.name}` | {case.cause} | missed | | |"
    if finding.quantity == "source":
        named = "yes" if finding.cause == SOURCE_CAUSES.get(case.name) else finding.cause
        return f"| `{case.name}` | {case.cause} | – | source | {named} |"
    named = next((name for name, known in CAUSES.items() if known["cause"] == finding.cause), "none")
    step, is_right = "–" if finding.step is None else finding.step, named == case.cause
    shown = ("yes, as a note" if finding.usual else "yes") if is_right else named
    return f"| `{case.name}` | {case.cause} | {step} | {finding.quantity} | {shown} |"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_corpus(corpus: dict[tuple[str, bool], list[Answer]]) -> None:
    assert not {name: apart(found) for (name, correct), found in corpus.items() if correct and apart(found)}
    in_source = {case.name: look(locate(case.module)) for case in CASES if case not in RUNNABLE}
    in_runs = {case.name: [answer.finding for answer in apart(corpus[case.name, False])] for case in RUNNABLE}
    findings: dict[str, Any] = {**in_source, **in_runs}
    rows = [row_of(case, next(iter(findings[case.name]), None)) for case in CASES]
    assert sum("missed" not in row for row in rows) >= 0.9 * len(CASES)
    assert sum("| yes" in row for row in rows) >= 0.75 * len(CASES)
    page = (ROOT / "docs" / "check.md").read_text()
    assert rows == re.findall("^\\| `\\w+` \\| .* \\|$", page, re.MULTILINE)


def answer(question: str, quantity: str, cause: str = "") -> Answer:
    finding = Finding(quantity, 1, 3, cause=CAUSES[cause]["cause"] if cause else "")
    return Answer(question, "apart", 1.0, 0.1, finding, world=2 if "2 ranks" in question else 1)


def test_what_follows_from_a_difference_is_no_second_one(tmp_path: Path) -> None:
    found = [
        answer("2 ranks and one process", "parameters", "rank 0 alone"),
        answer("a run of 2 ranks and one that is resumed", "parameters"),
        answer("Lockstep: ddp on 2 ranks, by Lightning and by raw", "loss"),
        answer("training with and without validation", "buffers", "eval not called"),
        Answer("the order of two epochs", "identical", 0.0),
        Answer("two workers and none", "not applicable", reason="it has none"),
        Answer("a run of 2 ranks and one that is resumed", "undecided", reason="it fails", error="KeyError: 'a'"),
        Answer("a run of 1 rank and one that is resumed", "undecided", reason="it fails", error="KeyError: 'a'"),
    ]
    report = Report(tmp_path, "Net on Data", "64-true", tuple(found))
    assert [len(others) for _, others in report.findings()] == [2, 0]
    resumes = "a run of 2 ranks and one that is resumed, a run of 1 rank and one that is resumed"
    assert f"undecided {resumes}: it fails: KeyError: 'a' 2 differences; 2 undecided" in " ".join(report.text().split())
    assert "it has none" not in report.text()
    report.save()
    assert "it has none" in (tmp_path / "report.html").read_text()


CALLS = "the module calls collectives itself, and Lockstep's cannot be compared: loss, epoch 1, step 3"
ALONE = "a stock Trainer's ranks show no such mistake, and Lockstep's cannot be compared: loss, epoch 1, step 3"


VERDICTS = {"": "apart", CALLS: "not applicable", ALONE: "undecided"}


@pytest.mark.parametrize(
    ("drew", "calls", "stock", "reason"),
    [
        ([], [], [], ALONE),
        (["random"], [], [], ""),
        (["random"], ["reduce"], [], CALLS),
        ([], [], [("validation on 2 ranks and one process", "validation")], ALONE),
        ([], [], [("a run of 2 ranks and one that is resumed", "optimizer")], ALONE),
        ([], [], [("2 ranks and one process", "gradient")], ""),
        ([], ["reduce"], [("2 ranks and one process", "gradient")], CALLS),
    ],
)
def test_lockstep_judges_only_what_can_follow_from_a_stock_trainer(
    drew: list[str], calls: list[str], stock: list[tuple[str, str]], reason: str
) -> None:
    alone = {"steps": [{"drew": drew}], "facts": {"varies": False}}
    ranks = [{"steps": [{"calls": calls, "random": {"torch": ""}}]}]
    evidence = Evidence({"straight": [alone]}, {2: {"straight": ranks}}, lambda _quantity, _step: 0.0)
    ours = answer("Lockstep: ddp on 2 ranks and virtual ranks", "loss")
    result = settled(ours, evidence, [answer(*each) for each in stock])
    assert (result.verdict, result.reason) == (VERDICTS[reason], reason)


def layers_of(layer: nn.Module, *batches: torch.Tensor) -> list[dict[str, Any]]:
    """Return what a probe notes of a layer's inputs and outputs at one step, on one rank for each batch."""
    return [{"inputs": {"0": sums(each)}, "outputs": {"0": sums(layer(each))}, "backward": {}} for each in batches]


def test_a_layer_that_mixes_the_samples_of_a_batch_is_named() -> None:
    inputs = torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    norm, linear = nn.BatchNorm1d(3).double(), nn.Linear(3, 2).double()
    for layer, expected in ((norm, ("0, forward", "0")), (linear, ("", ""))):
        [alone], ranks = layers_of(layer, inputs), layers_of(layer, inputs[:4], inputs[4:])
        assert first_layer(alone, ranks, 1e-9) == expected
    [alone], ranks = layers_of(linear, inputs), layers_of(linear, inputs[:4], inputs[:4])
    assert first_layer(alone, ranks, 1e-9) == ("inputs of 0", "")


class NumpyNoise(Regression):
    """Draws from NumPy's generator in each step."""

    def loss(self, batch: list[torch.Tensor]) -> torch.Tensor:
        return super().loss(batch) * (1 + numpy.random.rand())


@pytest.mark.slow
def test_answers_say_why_in_a_sentence(tmp_path: Path) -> None:
    """Draws from NumPy cannot be frozen; a plateau of a validation's value needs validations."""
    drawn = {
        each.question: each
        for each in answers_of(
            traces_of(Subject({"_target_": f"{__name__}.NumpyNoise"}, {"_target_": DATA}, 8), tmp_path, 0)
        )
    }
    reason = drawn["one batch and two accumulated halves"].reason
    assert reason == "training_step draws random numbers that depend on the layout (numpy)"
    results = traces_of(subject_of(BY_NAME["LocalPlateau"], True), tmp_path, 1)
    answer = {each.question: each for each in answers_of(results)}["training with and without validation"]
    assert (answer.verdict, answer.error) == ("not applicable", "")
    assert answer.reason == "it does not train without validation"


def test_progress_is_a_line_for_each_part(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress([2], ["ddp"])
    progress.begin("a stock Trainer in one process")
    progress.begin("Lockstep: ddp on 2")
    lines = ["check 2/6: a stock Trainer in one process", "check 4/6: Lockstep: ddp on 2"]
    assert capsys.readouterr().err.splitlines() == lines


def test_each_answer_is_printed_once_known_where_no_terminal_shows_progress(capsys: pytest.CaptureFixture[str]) -> None:
    progress, known = Progress([2], ["ddp"]), [Answer("the order of two epochs", "identical")]
    progress.show(known)
    progress.show([*known, answer("2 ranks and one process", "loss", "loss is summed")])
    lines = [
        "  identical  the order of two epochs",
        "  apart      2 ranks and one process: loss, epoch 1, step 3, by 1.0e+00",
    ]
    assert capsys.readouterr().out.splitlines() == lines


def test_rows_in_another_order_are_the_same_queue() -> None:
    queue = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    one, other = (sketch([("queue", rows)]) for rows in (queue, queue.flip(0)))
    assert distances(one, other)["queue"] > 1e-3
    assert distances(one, other, in_order=False)["queue"] < 1e-12
    assert distances(one, sketch([("queue", queue.roll(1, 1))]), in_order=False)["queue"] > 1e-3


def test_frozen_noise_is_the_same_for_each_sample_and_leaves_the_generators_alone() -> None:
    state, noise = torch.get_rng_state(), Noise(freezes=True)
    drawn = []
    for size in (4, 8):
        noise.restart()
        with noise:
            drawn.append([torch.randn(size, 5), torch.nn.functional.dropout(torch.ones(size, 5)), torch.randperm(size)])
    for few, many in zip(*drawn, strict=True):
        assert torch.equal(few, many[:4])
    assert drawn[0][0][0].std() > 0.1
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.slow
def test_a_built_in_net_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = lockstep.check(["model=mlp", "data=digits", "model.net.hidden=[8]", "steps=6"])
    assert not report.is_apart, report.text()
    assert (report.folder / "check.json").is_file()
