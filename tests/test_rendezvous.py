"""Where ranks meet: the same run whichever way, no open door, no guess of a port, and names for who did not come."""

import json
import os
import re
import socket
import stat
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from lockstep.config_error import ConfigError
from lockstep.launch.external_rendezvous import open_external_rendezvous
from lockstep.launch.open_rendezvous import open_rendezvous
from lockstep.launch.start import start_ranks
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from tests.conftest import ROOT, Command, MakePlan, free_port
from tests.test_launch import DDP, ENGINE

WAYS = ["auto", "file", "env", "tcp", "file://"]


def method(way: str, folder: Path) -> str:
    """As it is typed."""
    own = {"tcp": f"tcp://127.0.0.1:{free_port()}", "file://": f"file://{folder / 'meeting'}"}
    return f"process_group.init_method={own.get(way, way)}"


def doors() -> set[object]:
    """This process's TCP sockets; stores of other tests stay open until it ends."""
    return {(one.fd, one.laddr, one.raddr) for one in psutil.Process().net_connections("tcp")}


@pytest.mark.parametrize("strategy", DDP)
@pytest.mark.parametrize("way", WAYS)
def test_ranks_meet(make_plan: MakePlan, strategy: str, way: str, tmp_path: Path) -> None:
    plan = make_plan(strategy, "devices=3", "batch_size=12", method(way, tmp_path), "process_group.backend=gloo")
    before = doors()
    assert start_ranks(plan, ENGINE)["total"] == 18
    assert doors() == before, "the door is shut behind them"


@pytest.mark.parametrize("way", ["env", "tcp"])
def test_nothing_listens(make_plan: MakePlan, way: str, tmp_path: Path) -> None:
    """The ranks meet at a file, and MASTER_ADDR and MASTER_PORT name a port that rank 0's own code may open."""
    world = make_plan("strategy=ddp", "devices=2", method(way, tmp_path)).world
    before = doors()
    with open_rendezvous(world, tmp_path) as rendezvous:
        assert doors() == before
        assert Path(rendezvous.path).parent == tmp_path
        assert rendezvous.variables == {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(rendezvous.port)}
        socket.create_server((rendezvous.address, rendezvous.port)).close()


def test_a_port_that_is_taken_is_refused(make_plan: MakePlan) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        way = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(
            ConfigError, match=f"process_group.init_method={way}: this machine cannot open it .*; write"
        ):
            start_ranks(make_plan("strategy=ddp", "devices=2", f"process_group.init_method={way}"), ENGINE)


NO_FILES = {
    "earlier": "it exists already, from an earlier rendezvous, say; write",
    "nowhere/at/all": "its folder does not exist; write",
    "/proc/x": "the file cannot be made (No such file or directory); write",
    "/dev/null": "it exists already, from an earlier rendezvous, say; write",
    "/proc/self/x": "the file cannot be made (No such file or directory); write",
    ".": "it exists already, from an earlier rendezvous, say; write",
    "link": "it exists already, from an earlier rendezvous, say; write",
    "x" * 300: "the file cannot be made (File name too long); write",
    "sealed/x": "the file cannot be made (Permission denied); write",
}


@pytest.mark.parametrize("name", NO_FILES, ids=lambda name: name[:20])
def test_a_file_that_cannot_serve_is_refused(name: str, make_plan: MakePlan, tmp_path: Path) -> None:
    if name.startswith("sealed") and os.geteuid() == 0:
        pytest.skip("root is denied no folder")
    if name.startswith("/") and sys.platform != "linux":
        pytest.skip("needs /proc")
    (tmp_path / "earlier").write_text("")
    (tmp_path / "link").symlink_to("/nowhere")
    (tmp_path / "sealed").mkdir(mode=0o500)
    way = f"file://{tmp_path / name}"
    plan = make_plan("strategy=ddp", "devices=2", f"process_group.init_method={way}", "process_group.timeout=5")
    began = time.monotonic()
    with pytest.raises(ConfigError, match=f"process_group.init_method=file://.*: {re.escape(NO_FILES[name])}"):
        start_ranks(plan, ENGINE)
    with pytest.raises(ConfigError, match=r"process_group.init_method=file://.*: "):
        claimed_by_a_rank(plan, tmp_path / name)
    assert time.monotonic() - began < 20, "the fork server included"


def claimed_by_a_rank(plan: Plan, path: Path) -> None:
    """As torchrun's rank 1 would."""
    if path.name == "earlier":
        path.chmod(0o622)  # others could write to it
    with open_external_rendezvous(plan.world, RankContext(1, 2, 1, 2)):
        pass


def test_the_file_is_its_owners_alone(make_plan: MakePlan, tmp_path: Path) -> None:
    """Whatever `umask` says."""
    world, before = make_plan("strategy=ddp", "devices=2", method("file://", tmp_path)).world, os.umask(0)
    try:
        with (
            open_rendezvous(world, tmp_path) as rendezvous,
            open_external_rendezvous(world, RankContext(1, 2, 1, 2)) as same,
        ):
            assert stat.S_IMODE(Path(rendezvous.path).stat().st_mode) == 0o600
            assert same.path == rendezvous.path
    finally:
        os.umask(before)


SHORT = ("data=line", "model=linear", "data.samples=64", "data.val_size=0", "max_epochs=1", "logger=none", "engine=raw")


def rank_by_hand(rank: int, world: int, port: int) -> dict[str, Any]:
    """What a person sets who starts each rank from a shell of its own."""
    env = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {key: str(value) for key, value in env.items()}


@pytest.mark.parametrize(
    "way", [*("auto", "file://"), *(pytest.param(way, marks=pytest.mark.slow) for way in WAYS[1:4])]
)
def test_ranks_started_by_hand_meet(command: Command, way: str, tmp_path: Path) -> None:
    port, typed = free_port(), method(way, tmp_path)
    train = (sys.executable, str(ROOT / "train.py"), *SHORT, "strategy=ddp", "devices=2", typed)
    second, first = (command.popen(*train, **rank_by_hand(rank, 2, port)) for rank in (1, 0))
    ended = [command.wait(process) for process in (first, second)]
    assert [rank.status for rank in ended] == [0, 0], ended


def test_ranks_of_two_machines_meet(command: Command) -> None:
    """One rank each, rank 0 hosting; the weights are those of two ranks on one machine."""
    job = (*SHORT, "strategy=ddp", "devices=1", "num_nodes=2", "threads=1")
    env = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GLOO_SOCKET_IFNAME": "lo"}
    port = free_port()
    second, first = (
        command.popen(sys.executable, str(ROOT / "train.py"), *job, **(rank_by_hand(rank, 2, port) | env))
        for rank in (1, 0)
    )
    ended = [command.wait(process) for process in (first, second)]
    assert [rank.status for rank in ended] == [0, 0], ended
    together = Command(command.folder / "one machine")
    together.folder.mkdir()
    one = together.train(*SHORT, "strategy=ddp", "devices=2", "threads=1")
    digests = {json.loads((run / "metrics.json").read_text())["digest"] for run in (ended[0].run_dir, one.run_dir)}
    assert len(digests) == 1


def test_machines_are_not_guessed(command: Command) -> None:
    """With another host as MASTER_ADDR, ranks may be on several machines."""
    env = rank_by_hand(0, 2, 29500) | {"MASTER_ADDR": "somewhere.else"}
    ended = command.train(*SHORT, "strategy=ddp", "devices=2", **env)
    assert ended.status == 2
    assert ended.err.startswith("LOCAL_WORLD_SIZE is missing: with MASTER_ADDR=somewhere.else")


def test_a_port_that_is_none_is_refused(command: Command) -> None:
    ended = command.train(*SHORT, "strategy=ddp", "devices=2", **rank_by_hand(0, 2, 29500) | {"MASTER_PORT": "abc"})
    assert ended.status == 2
    assert (
        ended.err == "MASTER_PORT=abc: this environment variable takes a port; write MASTER_PORT=29500, or unset it.\n"
    )


def test_the_file_is_gone_when_the_run_is_over(make_plan: MakePlan, tmp_path: Path) -> None:
    plan = make_plan("strategy=ddp", "devices=2", method("file://", tmp_path))
    for _ in range(2):
        assert start_ranks(plan, ENGINE)["total"] == 6
        assert not (tmp_path / "meeting").exists()


def test_a_rank_alone_meets_nobody(command: Command) -> None:
    """And removes no file of the user's."""
    for name in ("auto", "env"):
        (command.folder / name).write_text("mine")
    for way in ("auto", "env"):
        env = rank_by_hand(0, 1, free_port())
        assert command.train(*SHORT, f"process_group.init_method={way}", **env).status == 0
    assert [(command.folder / name).read_text() for name in ("auto", "env")] == ["mine", "mine"]


def test_a_folder_that_is_missing_ends_at_once(command: Command) -> None:
    way = "process_group.init_method=file:///nowhere/at/all"
    ended = command.train(*SHORT, "strategy=ddp", "devices=2", way, **rank_by_hand(0, 2, free_port()))
    assert ended.status == 2
    assert "its folder does not exist" in ended.err


def test_env_is_what_the_environment_says(make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    port = free_port()
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    with open_rendezvous(make_plan("strategy=ddp", "devices=2", method("env", tmp_path)).world, tmp_path) as rendezvous:
        assert (rendezvous.address, rendezvous.port) == ("127.0.0.1", port)


@pytest.mark.parametrize("way", ["file", *(pytest.param(way, marks=pytest.mark.slow) for way in ("env", "tcp"))])
def test_a_rank_that_never_comes_is_named(command: Command, way: str, tmp_path: Path) -> None:
    limit = "process_group.timeout=2"
    three = (*SHORT, "strategy=ddp", "devices=3", "batch_size=63")
    ended = command.train(*three, limit, method(way, tmp_path), **rank_by_hand(0, 3, free_port()))
    assert (ended.status, ended.err) == (
        1,
        "rank 0 failed: ranks 1, 2 of 3 did not join within 2 s (process_group.timeout)\n",
    )
    assert ended.seconds < 12, "start of Python included"


def test_a_host_that_never_comes_is_named(command: Command) -> None:
    port = free_port()
    ended = command.train(*SHORT, "strategy=ddp", "devices=2", "process_group.timeout=2", **rank_by_hand(1, 2, port))
    sentence = f"nobody answered at 127.0.0.1:{port} within 2 s (process_group.timeout); is rank 0 running?"
    assert (ended.status, ended.err) == (1, f"rank 1 failed: {sentence}\n")


def test_a_rank_out_of_range_is_refused(command: Command) -> None:
    ended = command.train(*SHORT, "strategy=ddp", "devices=2", **rank_by_hand(2, 2, 29500))
    assert ended.status == 2
    assert ended.err.startswith("RANK=2: of 2 ranks the last is 1; write RANK=0 to 1")
