"""An intruder at the store of a rendezvous can keep ranks from joining, and cannot give them a value."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import DistStoreError, PrefixStore, TCPStore  # type: ignore[attr-defined]

from lockstep.config_error import ConfigError
from lockstep.launch.external_rendezvous import PortRendezvous, read_key
from lockstep.launch.signed_store import SignedStore
from lockstep.launch.stop_request import StopRequest
from lockstep.launch.topology import STOP_REQUESTED, RankContext
from lockstep.plan import Plan
from lockstep.world import World
from tests.conftest import ROOT, Command, free_port
from tests.test_rendezvous import SHORT, rank_by_hand

SECRET = b"1" * 64
SHORTLY = timedelta(seconds=0.2)


@pytest.fixture
def plain() -> Any:
    """A store that anybody may write to."""
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def test_signed_values_are_read_with_the_secret(plain: Any) -> None:
    one, two = SignedStore(plain, SECRET, SHORTLY), SignedStore(plain, SECRET, SHORTLY)
    one.set("key", b"\x00\xffvalue")
    assert two.get("key") == b"\x00\xffvalue"
    assert two.check(["key"])
    assert [two.add("count", 2), one.add("count", 3), two.add("count", 0)] == [2, 5, 5]
    assert one.compare_set("turn", "", "a") == b"a"
    assert two.compare_set("turn", "a", "b") == b"b"
    assert two.compare_set("turn", "a", "c") == b"b"
    assert one.clone().get("turn") == b"b"
    assert not SignedStore(plain, b"2" * 64, SHORTLY).check(["key"])


class Overtaken(SignedStore):
    """Another rank adds as much at the last moment."""

    rival: SignedStore | None = None

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        rival, self.rival = self.rival, None
        if rival is not None:
            rival.add(key, 1)
        return super().compare_set(key, expected, desired)


def test_concurrent_additions_are_counted(plain: Any) -> None:
    store = Overtaken(plain, SECRET, SHORTLY)
    store.rival = SignedStore(plain, SECRET, SHORTLY)
    assert store.add("count", 1) == 2
    assert store.add("count", 0) == 2


def test_unsigned_values_are_missing(plain: Any) -> None:
    store = SignedStore(plain, SECRET, SHORTLY)
    store.set("signed", "value")
    for forged in (b"", b"value", b"0" * 64 + b"value", plain.get("signed")[:-1] + b"f"):
        plain.set("key", forged)
        assert not store.check(["key"])
    plain.set("key", plain.get("signed"))
    assert not store.check(["key"]), "a signature is of its own key"
    for ask in (store.get, lambda key: store.wait([key]), lambda key: store.add(key, 1)):
        began = time.monotonic()
        with pytest.raises(DistStoreError, match="timed out"):
            ask("key")
        assert time.monotonic() - began < 2
    store.set("key", "genuine")
    assert store.get("key") == b"genuine"


@contextmanager
def intruder(command: Command, port: int, action: str) -> Iterator[list[str]]:
    """Start intruder.py at a port; yields the list of its output, which is complete when it has ended."""
    output: list[str] = []
    line = (sys.executable, str(ROOT / "tests" / "intruder.py"), "127.0.0.1", str(port), action)
    process = command.popen(*line, PYTHONPATH=str(ROOT))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", "it has imported torch before the ranks are done"
    try:
        yield output
    finally:
        process.kill()
        output += process.communicate()[0].splitlines()


def test_an_unsigned_store_believes_the_intruder(command: Command, plain: Any) -> None:
    unsigned = PrefixStore("0" * 64, plain)
    unsigned.set("rank 0 has joined", "")
    signed = SignedStore(unsigned, SECRET, SHORTLY)
    with intruder(command, plain.port, "add"):
        unsigned.set_timeout(timedelta(seconds=30))
        unsigned.wait([STOP_REQUESTED])
        believing, doubting = (StopRequest(lambda: False, 0, 1, store) for store in (unsigned, signed))
        assert believing._requested_by_peer()
        assert not doubting._requested_by_peer()


LONG = (*SHORT[:3], "data.val_size=0", "max_epochs=40", "logger=none", "engine=raw", "threads=1", "strategy=ddp")


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the digest of the weights of two undisturbed ranks."""
    ended = Command(tmp_path_factory.mktemp("undisturbed")).train(*LONG, "devices=2")
    return str(json.loads((ended.run_dir / "metrics.json").read_text())["digest"])


def two_machines(command: Command, port: int, launcher: str, *overrides: str) -> list[Any]:
    """Run two ranks that take this machine for two, started by hand, or each by a torchrun."""
    line = (str(ROOT / "train.py"), *LONG, "devices=1", "num_nodes=2", "hydra.run.dir=run", *overrides)
    env = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    processes = []
    for rank in (1, 0):
        shape = ("--nnodes=2", f"--node_rank={rank}", "--master_addr=127.0.0.1", f"--master_port={port}")
        starter = ("-m", "torch.distributed.run", *shape) if launcher == "torchrun" else ()
        variables = {} if launcher == "torchrun" else rank_by_hand(rank, 2, port) | env
        processes.append(command.popen(sys.executable, *starter, *line, GLOO_SOCKET_IFNAME="lo", **variables))
    return [command.wait(process) for process in reversed(processes)]


def check_digest(run_dir: Path, digest: str) -> None:
    assert json.loads((run_dir / "metrics.json").read_text())["digest"] == digest


@pytest.mark.parametrize("launcher", ["by hand", pytest.param("torchrun", marks=pytest.mark.slow)])
def test_an_intruder_cannot_stop_ranks_on_several_machines(launcher: str, command: Command, digest: str) -> None:
    port, run_dir = free_port(), command.folder / "run"
    with intruder(command, port, "add") as output:
        ended = two_machines(command, port, launcher)
    assert [rank.status for rank in ended] == [0, 0], ended
    check_digest(run_dir, digest)
    assert any(line.startswith("wrote") and line.endswith("/stop") for line in output), output


@pytest.mark.slow
def test_an_intruder_who_rewrites_values_can_only_prevent_the_rendezvous(command: Command, digest: str) -> None:
    port = free_port()
    with intruder(command, port, "rewrite") as output:
        ended = two_machines(command, port, "by hand", "process_group.timeout=4")
    if [rank.status for rank in ended] == [0, 0]:  # they were faster
        check_digest(command.folder / "run", digest)
    else:
        assert [rank.status for rank in ended] == [1, 1], ended
        assert any("within 4 s" in rank.err or "timed out" in rank.err.lower() for rank in ended), ended
    assert max(rank.seconds for rank in ended) < 30
    assert any(line.startswith("wrote") for line in output)


@pytest.mark.slow
def test_an_intruder_cannot_stop_ranks_of_torchrun_on_one_machine(command: Command, digest: str) -> None:
    port, line = free_port(), (sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2")
    with intruder(command, port, "add") as output:
        ended = command(*line, f"--master_port={port}", str(ROOT / "train.py"), *LONG, "devices=2")
    assert ended.status == 0, ended
    check_digest(ended.run_dir, digest)
    assert any(line.startswith("wrote") and line.endswith("/stop") for line in output), output


@pytest.mark.parametrize("fault", ["link", "readable", "short", "header", "fifo", "foreign"])
def test_only_a_private_file_is_read_as_a_key(fault: str, tmp_path: Path) -> None:
    key = read_key(tmp_path)
    assert read_key(tmp_path) == key
    [path] = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    if fault == "link":
        path.symlink_to(path.rename(tmp_path / "elsewhere"))
    elif fault == "readable":
        path.chmod(0o640)
    elif fault == "fifo":
        path.unlink()
        os.mkfifo(path, 0o600)
    elif fault == "foreign":
        if os.geteuid() != 0:
            pytest.skip("needs root")
        os.chown(path, 65534, 65534)
    else:
        path.write_bytes(key[:-1] if fault == "short" else b"password" + key[8:])
    with pytest.raises(ConfigError):
        read_key(tmp_path)


def test_a_group_is_of_one_key_and_one_run(make_plan: Callable[..., Plan], plain: Any) -> None:
    """A rank signs with its own nonce, whatever the store says."""
    world: World = make_plan("strategy=ddp", "devices=2").world
    ranks = [RankContext(rank, 2, rank, 2) for rank in range(2)]
    first, second, again = (PortRendezvous(key=b"1") for _ in range(3))
    second.group_store(plain, world, ranks[1])
    group = first.group_store(plain, world, ranks[0])
    group.set("key", "value")
    assert second.group_store(plain, world, ranks[1]).get("key") == b"value"
    for other in (again, PortRendezvous(key=b"2", nonce=second.nonce)):
        assert not other.group_store(plain, world, ranks[1]).check(["key"])
    plain.set("nonce of rank 1", second.nonce)
    assert not again.group_store(plain, world, ranks[1]).check(["key"])
