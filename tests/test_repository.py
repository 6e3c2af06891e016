"""The files for those who clone the repository: the workflow and the Makefile run what .ci/run does."""

import re
import subprocess
import tomllib
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

CONTRIBUTING = ROOT / ".github" / "CONTRIBUTING.md"
MAKE = (ROOT / "Makefile").read_text()
TARGETS = {*re.findall(r"^(\w+):", MAKE, re.MULTILINE)}
CI = (ROOT / ".ci" / "run").read_text()


@pytest.fixture
def workflow() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
    return content


def make(*words: str) -> str:
    line = ["make", "--no-print-directory", *words]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout


def test_make_runs_what_the_ci_runs() -> None:
    lines = make("-n", "lint", "test", "slow").splitlines()
    assert lines == ["ruff check .", "ruff format --check .", "mypy", "pytest", "pytest -m slow"]
    assert [line for line in lines if line not in CI] == []


def test_make_help_lists_every_target() -> None:
    assert {*re.findall(r"^  make (\w+)  +\w", make(), re.MULTILINE)} == TARGETS
    assert {*re.findall(r"`make (\w+)", CONTRIBUTING.read_text())} <= TARGETS


def test_the_workflow_runs_the_commands_of_the_ci_within_limits(workflow: dict[str, Any]) -> None:
    [job] = workflow["jobs"].values()
    steps = [step for step in job["steps"] if "run" in step]
    words = [step["run"] for step in steps]
    assert words[-3:] == ["make lint", "make test", "make slow"]
    assert [line for line in words[:-3] if line.replace("pip install", "pip install -q") not in CI] == []
    assert sum(step["timeout-minutes"] for step in steps) >= job["timeout-minutes"] >= 60
    assert [step["run"] for step in steps if "if" in step] == ["make slow"]
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets" not in str(workflow)


def test_the_workflow_begins_with_the_oldest_python(workflow: dict[str, Any]) -> None:
    [job] = workflow["jobs"].values()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = job["strategy"]["matrix"]["python-version"]
    assert project["requires-python"] == f">={versions[0]}"
    assert versions == [f"3.{minor}" for minor in range(11, 11 + len(versions))]


def test_links_and_files_of_the_contributors_page() -> None:
    page = CONTRIBUTING.read_text()
    for link in re.findall(r"\]\(([^)\s#]+)[^)]*\)", page):
        assert (CONTRIBUTING.parent / link).resolve().exists(), link
    for path in re.findall(r"`((?:raw|session|tests)/[a-z_]+\.py)`", page):
        assert (ROOT / path).exists() or (ROOT / "src" / "lockstep" / path).exists(), path
