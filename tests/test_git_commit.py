"""The commit that a run records: of the working directory, and bounded whatever git does."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.runs.git_commit import git_commit

GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
ANSWER = "# branch.oid " + "c" * 40


def git(*words: str) -> str:
    return subprocess.run([*GIT, *words], capture_output=True, text=True, check=True, timeout=60).stdout.strip()


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Replace git by a program with this body."""

    def write(body: str) -> None:
        (tmp_path / "git").write_text(f"#!{sys.executable}\n{body}")
        (tmp_path / "git").chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path))
    return write


def test_the_commit_and_whether_the_tree_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    assert git_commit() == "", "there is no repository"
    git("init", "--quiet", "..")
    assert git_commit() == "", "there is no commit"
    Path("net.py").write_text("1")
    git("add", "net.py")
    git("commit", "--quiet", "-m", "first")
    commit = git("rev-parse", "HEAD")[:12]
    Path("untracked.py").touch()
    os.utime("net.py", (1, 1))
    index = (tmp_path / ".git" / "index").read_bytes()
    assert git_commit() == commit
    assert (tmp_path / ".git" / "index").read_bytes() == index, "git would have refreshed it under a lock"
    Path("net.py").write_text("22")
    assert git_commit() == f"{commit}-dirty"


def test_a_slow_git_is_ended(stub: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.runs.git_commit.LIMIT", 0.2)
    stub(f"import time; print('{ANSWER}', flush=True); time.sleep(60)")
    began = time.monotonic()
    assert git_commit() == ""
    assert time.monotonic() - began < 5
