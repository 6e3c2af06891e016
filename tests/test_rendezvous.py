"""The rendezvous of ranks: the same run whatever the method, no open port, and errors that name absent ranks."""

import os
import re
import socket
import stat
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from torch.distributed import Store  # type: ignore[attr-defined]

from lockstep.base.config_error import ConfigError
from lockstep.base.errors import ExpectedError
from lockstep.launch.external_launcher import rank_from_env
from lockstep.launch.rendezvous import group_file, join, master_variables
from lockstep.launch.start import start_ranks
from lockstep.launch.topology import RankContext
from tests.comparing import metrics_in
from tests.conftest import ROOT, Command, MakePlan, free_port
from tests.test_launch import DDP, ENGINE

METHODS = ["auto", "file", "env", "tcp", "file://"]
RANK_ONE = RankContext(1, 2, 1, 2)


def method(name: str, folder: Path) -> str:
    """Return the override of an init_method."""
    urls = {"tcp": f"tcp://127.0.0.1:{free_port()}", "file://": f"file://{folder / 'meeting'}"}
    return f"process_group.init_method={urls.get(name, name)}"


def connections() -> set[object]:
    """Return this process's TCP sockets; stores of other tests stay open until it ends."""
    return {(each.fd, each.laddr, each.raddr) for each in psutil.Process().net_connections("tcp")}


@pytest.mark.parametrize(("strategy", "name"), [*((DDP[0], name) for name in METHODS), (DDP[1], "auto")])
def test_ranks_rendezvous(make_plan: MakePlan, strategy: str, name: str, tmp_path: Path) -> None:
    plan = make_plan(strategy, "devices=3", "batch_size=12", method(name, tmp_path), "process_group.backend=gloo")
    before = connections()
    for _ in range(2):
        assert start_ranks(plan, ENGINE)["total"] == 18
        assert connections() == before
        assert not (tmp_path / "meeting").exists()


@pytest.mark.parametrize("name", ["env", "tcp"])
def test_nothing_listens(make_plan: MakePlan, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MASTER_ADDR and MASTER_PORT name a port that rank 0's own code may open."""
    port = str(free_port())
    monkeypatch.setenv("MASTER_PORT", port)
    override = "env" if name == "env" else f"tcp://127.0.0.1:{port}"
    plan = make_plan("strategy=ddp", "devices=2", f"process_group.init_method={override}")
    before = connections()
    assert master_variables(plan.world) == {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    assert connections() == before
    with (
        socket.create_server(("127.0.0.1", int(port))),
        pytest.raises(
            ConfigError, match=f"process_group.init_method=tcp://.*:{port}: this machine cannot open it .*; write"
        ),
    ):
        start_ranks(plan, ENGINE)


EXISTS = "cannot be created (File exists); write"
BAD_FILES = {
    "earlier": EXISTS,
    "nowhere/at/all": "cannot be created (No such file or directory); write",
    "/dev/null": EXISTS,
    "link": EXISTS,
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_an_unusable_file_is_rejected(name: str, make_plan: MakePlan, tmp_path: Path) -> None:
    """By the command, and by a rank of an external launcher, which may not be the first."""
    (tmp_path / "earlier").touch()
    (tmp_path / "earlier").chmod(0o622)  # others could write to it
    (tmp_path / "link").symlink_to("/nowhere")
    plan = make_plan("strategy=ddp", "devices=2", f"process_group.init_method=file://{tmp_path / name}")
    with pytest.raises(ConfigError, match=f"process_group.init_method=file://.* {re.escape(BAD_FILES[name])}"):
        start_ranks(plan, ENGINE)
    with (
        pytest.raises(ConfigError, match=r"process_group.init_method=file://.*: "),
        group_file(plan.world, tmp_path / "default", RANK_ONE),
    ):
        pass


def test_another_users_file_is_rejected(make_plan: MakePlan, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    (tmp_path / "group").touch()
    os.chown(tmp_path / "group", 65534, 65534)
    with (
        pytest.raises(ConfigError, match=r"group is no plain file that you alone may write to; write"),
        group_file(make_plan("strategy=ddp", "devices=2").world, tmp_path / "group", RANK_ONE),
    ):
        pass


def test_only_its_owner_can_access_the_file(make_plan: MakePlan, tmp_path: Path) -> None:
    """Whatever the umask."""
    world, before = make_plan("strategy=ddp", "devices=2", method("file://", tmp_path)).world, os.umask(0)
    try:
        with group_file(world, tmp_path / "default") as path, group_file(world, tmp_path / "default", RANK_ONE) as same:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert same == path == tmp_path / "meeting"
    finally:
        os.umask(before)
    assert not path.exists()


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
        with pytest.raises(ConfigError, match=r"ranks of another job meet at .*group, too; write process"):
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


LINE = ("data=line", "model=linear", "model._target_=lockstep.models.Regressor", "data.samples=64", "data.val_size=0")
SHORT = (*LINE, "max_epochs=1", "logger=none")
TRAIN = (sys.executable, str(ROOT / "train.py"), *SHORT, "strategy=ddp")


def rank_by_hand(rank: int, world: int, port: int) -> dict[str, Any]:
    """Return the variables of a person who starts each rank from a shell."""
    env = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {key: str(value) for key, value in env.items()}


def start_both(command: Command, *overrides: str, **env: str) -> list[Any]:
    port = free_port()
    processes = [command.popen(*TRAIN, *overrides, **(rank_by_hand(rank, 2, port) | env)) for rank in (1, 0)]
    ended = [command.wait(process) for process in reversed(processes)]
    assert [rank.status for rank in ended] == [0, 0], ended
    return ended


@pytest.mark.slow
def test_ranks_started_by_hand_rendezvous_at_their_users_file(command: Command, tmp_path: Path) -> None:
    start_both(command, "devices=2", method("file://", tmp_path))
    assert not (tmp_path / "meeting").exists()


def test_ranks_of_two_machines_rendezvous(command: Command) -> None:
    """One rank each; the weights are those of two ranks on one machine."""
    env = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GLOO_SOCKET_IFNAME": "lo"}
    first, _ = start_both(command, "devices=1", "num_nodes=2", "threads=1", **env)
    assert [*first.run_dir.parent.iterdir()] == [first.run_dir], "their file is removed"
    alone = Command(command.folder / "one machine")
    alone.folder.mkdir()
    one = alone.train(*SHORT, "strategy=ddp", "devices=2", "threads=1")
    digests = {metrics_in(run)["digest"] for run in (first.run_dir, one.run_dir)}
    assert len(digests) == 1


def test_invalid_variables_are_rejected() -> None:
    ranks = rank_by_hand(0, 2, 29500)
    with pytest.raises(ConfigError, match="RANK=2: of 2 ranks the last is 1; write RANK=0 to 1"):
        rank_from_env(ranks | {"RANK": "2"})


def test_a_single_rank_needs_no_rendezvous(command: Command) -> None:
    """And removes no file of the user's."""
    (command.folder / "auto").write_text("mine")
    assert command.train(*SHORT, "process_group.init_method=auto", **rank_by_hand(0, 1, free_port())).status == 0
    assert (command.folder / "auto").read_text() == "mine"


@pytest.mark.slow
def test_absent_ranks_are_named(command: Command) -> None:
    overrides = ("devices=3", "batch_size=63", "process_group.timeout=2")
    ended = command(*TRAIN, *overrides, **rank_by_hand(0, 3, free_port()))
    reason = "ranks 1, 2 of 3 did not join within 2 s (process_group.timeout)"
    assert (ended.status, ended.err) == (1, f"rank 0 failed: {reason}\n")
    assert ended.seconds < 12
