"""A run on one machine cannot be reached from elsewhere, or by other users."""

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, Command
from tests.sockets import watch

TRAIN = (sys.executable, str(ROOT / "train.py"), "logger=none", "accelerator=cpu", "devices=2", "max_epochs=1")
BOTH = (*TRAIN, "engine=both", "strategy=ddp_spawn")
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


@pytest.mark.slow
def test_nothing_is_open(command: Command, temporary: Path) -> None:
    process = command.popen(*OPEN_TO_ALL, *BOTH, MASTER_PORT="29500", TMPDIR=str(temporary))
    seen = watch(process, temporary)
    ended = command.wait(process)
    assert ended.status == 0, ended.err
    assert seen.looks > 20
    assert not seen.open
    assert not seen.exposed
    assert "127.0.0.1" in seen.private, "gloo's own sockets, so the watch does see sockets"
    named = {name for name in seen.files if not PROBE.fullmatch(name)}
    assert len(named) == 1, "what a run needs only while it lasts lies in one folder"
    assert re.fullmatch("pymp-[a-z0-9_]{8}", named.pop()), "whose name nobody can guess"
    assert not list(temporary.iterdir())
