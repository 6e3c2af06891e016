"""`python -m lockstep.check`: planted bugs are found and named, correct twins and built-in nets raise no alarm."""

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep.check.__main__ import main
from lockstep.check.causes import CAUSES
from lockstep.check.command import answers
from lockstep.check.differences import measured
from lockstep.check.evidence import Evidence
from lockstep.check.findings import Answer, Finding
from lockstep.check.legs import Results, Subject, legs_of
from lockstep.check.source import look
from tests.conftest import IN_PROCESS, ROOT
from tests.silent_bugs.cases import CASES, Case, locate
from tests.silent_bugs.two_ranks import two_ranks
from tests.test_check_source import CAUSES as SOURCE_CAUSES

pytestmark = IN_PROCESS
RUNNABLE = [case for case in CASES if case.kind != "script" and case.layout != "source"]
BY_NAME = {case.name: case for case in CASES}
Measured = dict[tuple[str, bool], Results]


def subject_of(case: Case, correct: bool) -> Subject:
    path = case.twin if correct else case.module
    model, data = (path if case.kind == kind else getattr(case, kind) for kind in ("model", "data"))
    return Subject({"_target_": model}, {"_target_": data, **case.arguments}, batch_size=8)


def answers_of(single: Results, ranks: Results | None = None) -> list[Answer]:
    tolerance = measured(single["straight"][0], single["moved"][0], "64-true")
    return [*answers(Evidence(single, {2: ranks} if ranks else {}, tolerance))]


def apart(found: list[Answer]) -> list[Answer]:
    return [answer for answer in found if answer.verdict == "apart"]


def test_a_planted_bug_is_found_and_its_twin_raises_no_alarm(tmp_path: Path) -> None:
    first, *_ = apart(answers_of(legs_of(subject_of(BY_NAME["SlimCheckpoint"], False), tmp_path, 0)))
    assert first.finding is not None
    assert (first.finding.quantity, first.finding.step) == ("optimizer", 4)
    assert first.finding.cause == CAUSES["optimizer not restored"]["cause"]
    assert not apart(answers_of(legs_of(subject_of(BY_NAME["SlimCheckpoint"], True), tmp_path, 1)))


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("devices=1", "devices=1: it takes whole numbers from 2 on; write devices=2."),
        ("strategies=dp", "strategies=dp: it starts no ranks; write strategies=ddp"),
        ("steps=few", "steps=few: it takes whole numbers"),
        ("steps=10,20", "steps=10,20: it takes one number"),
    ],
)
def test_invalid_input_is_one_sentence(word: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 2
    assert capsys.readouterr().err.startswith(sentence)


def test_every_cause_has_a_case() -> None:
    assert {*CAUSES} == {case.cause for case in RUNNABLE if case.cause in CAUSES}


def measure(folder: Path) -> Measured:
    """Run all legs of all cases in this world."""
    pairs = product(RUNNABLE, (False, True))
    return {
        (case.name, correct): legs_of(subject_of(case, correct), folder, number)
        for number, (case, correct) in enumerate(pairs)
    }


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], list[Answer]]:
    """The answers about all cases, whose ranks are started once."""
    folder = tmp_path_factory.mktemp("corpus")
    with two_ranks(measure, folder) as results:
        single = measure(folder)
        shared: Measured = results()[0]
    return {key: answers_of(single[key], shared[key]) for key in single}


def row_of(case: Case, finding: Finding | None) -> str:
    """Return the line of docs/check.md about a case."""
    if finding is None:
        return f"| `{case.name}` | {case.cause} | missed | | |"
    if finding.quantity == "source":
        named = "yes" if finding.cause == SOURCE_CAUSES.get(case.name) else finding.cause
        return f"| `{case.name}` | {case.cause} | – | source | {named} |"
    named = next((name for name, known in CAUSES.items() if known["cause"] == finding.cause), "none")
    step = "–" if finding.step is None else finding.step
    return f"| `{case.name}` | {case.cause} | {step} | {finding.quantity} | {'yes' if named == case.cause else named} |"


@pytest.mark.slow
@pytest.mark.timeout(660)
def test_the_corpus(corpus: dict[tuple[str, bool], list[Answer]]) -> None:
    assert not {name: apart(found) for (name, correct), found in corpus.items() if correct and apart(found)}
    in_source = {case.name: look(locate(case.module)) for case in CASES if case not in RUNNABLE}
    in_runs = {case.name: [answer.finding for answer in apart(corpus[case.name, False])] for case in RUNNABLE}
    findings: dict[str, Any] = {**in_source, **in_runs}
    rows = [row_of(case, next(iter(findings[case.name]), None)) for case in CASES]
    assert sum("missed" not in row for row in rows) >= 0.9 * len(CASES)
    assert sum(row.endswith("| yes |") for row in rows) >= 0.75 * len(CASES)
    page = (ROOT / "docs" / "check.md").read_text()
    assert rows == re.findall("^\\| `\\w+` \\| .* \\|$", page, re.MULTILINE)


@pytest.mark.slow
def test_a_built_in_net_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = lockstep.check(["model=mlp", "data=digits", "model.net.hidden=[8]", "steps=6"])
    assert not report.is_apart, report.text()
    assert (report.folder / "check.json").is_file()
