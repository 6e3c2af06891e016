"""A run on one machine cannot be reached from elsewhere, or by other users."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, Command, Ended
from tests.netns import cluster
from tests.sockets import Watched, watch

TRAIN = (sys.executable, str(ROOT / "train.py"), "engine=both", "max_epochs=2", "logger=none", "accelerator=cpu")
RAW = (*TRAIN[:2], "engine=raw", "max_epochs=1", *TRAIN[4:])
TOUR = (sys.executable, "-m", "lockstep.collectives")
PROBE = re.compile("[a-z0-9_]{8}")
"""What Python's tempfile makes for an instant, to see whether it can."""
OPEN_TO_ALL = ("sh", "-c", 'umask 0; exec "$@"', "sh")
"""Makes every file of a command what the command itself does not forbid."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A temporary folder that is everybody's, as /tmp is."""
    with tempfile.TemporaryDirectory(prefix="doors-") as name:
        folder = Path(name)
        folder.chmod(0o1777)
        yield folder


def watched(command: Command, temporary: Path, *line: str) -> tuple[Ended, Watched]:
    process = command.popen(*OPEN_TO_ALL, *line, TMPDIR=str(temporary))
    seen = watch(process, temporary)
    return command.wait(process), seen


@pytest.mark.parametrize(
    ("line", "meets"),
    [
        pytest.param((*TRAIN, "strategy=single"), False, marks=pytest.mark.slow),
        ((*RAW, "strategy=ddp", "devices=2"), True),
        pytest.param(
            (*TRAIN, "strategy=ddp_spawn", "devices=2", "process_group.init_method=env"), True, marks=pytest.mark.slow
        ),
        pytest.param((*TOUR, "devices=3", "init_method=env"), True, marks=pytest.mark.slow),
    ],
    ids=["single", "ddp", "ddp_spawn", "tour by env"],
)
def test_nothing_is_open(line: tuple[str, ...], meets: bool, command: Command, temporary: Path) -> None:
    ended, seen = watched(command, temporary, *line)
    assert ended.status == 0, ended.err
    assert seen.looks > 20
    assert not seen.open
    assert not seen.exposed
    listening = [endpoint for endpoint in seen.endpoints if endpoint.protocol.startswith("tcp")]
    assert bool(listening) == meets, "gloo's own sockets, so the watch does see sockets"
    named = {name for name in seen.files if not PROBE.fullmatch(name)}
    assert len(named) == 1, "what a run needs only while it lasts lies in one folder"
    assert re.fullmatch("lockstep-tmp-[a-z0-9_]{8}", named.pop()), "whose name nobody can guess"
    assert not list(temporary.iterdir())


DNS_WITHOUT_REPLY = """
import signal, socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", flush=True)
while True:
    print(server.recv(512)[12:], flush=True)
"""
"""A name server that never answers: whoever asks it waits for seconds."""


@pytest.mark.parametrize(
    "line",
    [
        (*RAW, "strategy=ddp", "devices=2"),
        pytest.param((*TOUR, "devices=2"), marks=pytest.mark.slow),
    ],
    ids=["ddp", "tour"],
)
def test_the_host_name_is_never_looked_up(line: tuple[str, ...], command: Command) -> None:
    with cluster(1) as machines:
        [machine] = machines.machines
        server = command.popen(*machine.inside(sys.executable, "-c", DNS_WITHOUT_REPLY))
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            ended = command(*machine.inside(*line))
            asking = machine.inside("timeout", "1", "getent", "hosts", "asked-by-the-test")
            subprocess.run(asking, check=False)
        finally:
            server.terminate()
            queries = server.communicate()[0].splitlines()
    assert (ended.status, ended.err) == (0, "")
    assert queries, "the server hears queries"
    assert all("asked-by-the-test" in query for query in queries), queries
