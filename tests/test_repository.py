"""The files for those who clone the repository: the workflow and the Makefile run what .ci/run does."""

import re
import subprocess
import tomllib

import yaml

from tests.conftest import ROOT

CI = (ROOT / ".ci" / "run").read_text()


def make(*words: str) -> str:
    line = ["make", "--no-print-directory", *words]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout


def test_make_runs_what_the_ci_runs() -> None:
    lines = make("-n", "lint", "test", "slow").splitlines()
    assert lines == ["ruff check .", "ruff format --check .", "mypy", "pytest", "pytest -m slow"]
    assert [line for line in lines if line not in CI] == []
    targets = {*re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)}
    assert {*re.findall(r"^  make (\w+)  +\w", make(), re.MULTILINE)} == targets
    assert {*re.findall(r"`make (\w+)", (ROOT / ".github" / "CONTRIBUTING.md").read_text())} <= targets


def test_the_workflow_runs_the_commands_of_the_ci_by_every_python() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
    [job] = workflow["jobs"].values()
    words = [step["run"] for step in job["steps"] if "run" in step]
    assert words[-3:] == ["make lint", "make test", "make slow"]
    assert [line for line in words[:-3] if line.replace("pip install", "pip install -q") not in CI] == []
    assert workflow["permissions"] == {"contents": "read"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={job['strategy']['matrix']['python-version'][0]}"
