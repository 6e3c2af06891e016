"""The rendezvous of ranks: no open port, and errors that name absent ranks."""

import os
import stat
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from torch.distributed import Store  # type: ignore[attr-defined]

from lockstep.base.config_error import ConfigError
from lockstep.base.errors import ExpectedError
from lockstep.launch.rendezvous import create_shared, join
from lockstep.launch.start import start_ranks
from lockstep.launch.topology import RankContext
from tests.conftest import MakePlan
from tests.test_launch import ENGINE

RANK_ONE = RankContext(1, 2, 1, 2)


def connections() -> set[object]:
    """Return this process's TCP sockets; stores of other tests stay open until it ends."""
    return {(each.fd, each.laddr, each.raddr) for each in psutil.Process().net_connections("tcp")}


def test_ranks_rendezvous_without_a_port(make_plan: MakePlan) -> None:
    plan = make_plan("strategy=ddp", "devices=3", "batch_size=12")
    before = connections()
    assert start_ranks(plan, ENGINE)["total"] == 18
    assert connections() == before


def test_ranks_that_were_not_started_here_meet_at_a_file_of_their_user_alone(tmp_path: Path) -> None:
    """Whatever the umask; which rank is first is not known."""
    before = os.umask(0)
    try:
        for _ in range(2):
            create_shared(tmp_path / "folder" / "group")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "folder" / "group").stat().st_mode) == 0o600
    (tmp_path / "open").touch()
    (tmp_path / "open").chmod(0o622)
    (tmp_path / "link").symlink_to("/nowhere")
    for name, reason in (
        ("open", "is no plain file that you alone may write"),
        ("link", "Too many levels of symbolic"),
    ):
        with pytest.raises(ConfigError, match=rf"^hydra.run.dir={tmp_path}: .*{reason}"):
            create_shared(tmp_path / name)


def test_ranks_of_another_job_at_the_same_file_are_named(make_plan: MakePlan, tmp_path: Path) -> None:
    world, file = make_plan("strategy=ddp", "devices=2", "process_group.timeout=5").world, tmp_path / "group"
    with ThreadPoolExecutor() as threads:

        def start_rank(rank: int) -> "Future[Store]":
            """Return once the rank has written to the file."""
            size = file.stat().st_size if file.exists() else 0
            started = threads.submit(join, world, RankContext(rank, 2, rank, 2), file)
            while not file.exists() or file.stat().st_size == size:
                time.sleep(0.1)
            time.sleep(0.1)  # the store writes a counter first
            return started

        first, *others = start_rank(0), start_rank(0), start_rank(1)
        with pytest.raises(ConfigError, match=r"ranks of another job meet at .*group, too; write hydra"):
            first.result()
        for other in others:
            other.result()


def test_a_group_is_of_one_start(make_plan: MakePlan, tmp_path: Path) -> None:
    """At the file of an earlier group the next one meets, too, and what that one left stands for no rank."""
    world = make_plan("strategy=ddp", "devices=2", "process_group.timeout=1").world
    for value in ("first", "second"):
        with ThreadPoolExecutor() as threads:
            stores = [*threads.map(lambda rank: join(world, RankContext(rank, 2, rank, 2), tmp_path / "group"), (0, 1))]
        assert not stores[0].check(["key"])
        stores[0].set("key", value)
        assert stores[1].get("key") == value.encode()
    with pytest.raises(ExpectedError, match=r"^rank 0 of 2 did not join within 1 s"):
        join(world, RANK_ONE, tmp_path / "group")
