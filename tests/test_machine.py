"""Threads: the cores of the affinity, a container's quota, the variables of OpenMP and MKL, and what is typed."""

import os
from pathlib import Path

import pytest

from lockstep.launch.machine import VARIABLES, default_threads, usable_cores
from tests.conftest import MakePlan

CORES = len(os.sched_getaffinity(0))
GROUP = "1:name=systemd:/x\n0::/pod/job\n"


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        (GROUP, {"pod/job/cpu.max": "100000 100000"}, 1),
        (GROUP, {"pod/job/cpu.max": "max 100000", "pod/cpu.max": "50000 100000"}, 1),  # at least one
        ("0::/\n", {"cpu.max": "150000 100000"}, 1),  # two threads on 1.5 cores would be stopped in each period
        (GROUP, {}, CORES),
    ],
)
def test_a_containers_quota_counts(groups: str, files: dict[str, str], quota: int, tmp_path: Path) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "sys" / "fs" / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    assert usable_cores(tmp_path) == quota


def test_threads_are_the_cores_shared_and_at_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    cores = usable_cores()
    assert [default_threads(ranks) for ranks in (1, 2, 10 * cores)] == [cores, max(1, cores // 2), 1]


@pytest.mark.parametrize(
    ("variables", "threads"),
    [
        ({"OMP_NUM_THREADS": "5"}, 5),
        ({"OMP_NUM_THREADS": "5,2", "MKL_NUM_THREADS": "3"}, 5),
        ({"OMP_NUM_THREADS": "many"}, usable_cores()),
    ],
)
def test_the_environment_sets_the_threads(
    variables: dict[str, str], threads: int, monkeypatch: pytest.MonkeyPatch, make_plan: MakePlan
) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, variables.get(name, ""))
    assert make_plan().threads == threads
    assert make_plan("threads=1").threads == 1, "what is typed counts first"
