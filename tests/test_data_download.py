"""Published files are downloaded once and checked. The server here is real; the files are small."""

import contextlib
import gzip
import hashlib
import http.server
import io
import re
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from filelock import FileLock

from lockstep.base.config_error import ConfigError
from lockstep.datamodules.download import DataFile, fetch

CONTENT = bytes(range(256)) * 40
PACKED = gzip.compress(CONTENT)
FILE = DataFile("numbers", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
NOWHERE = "http://127.0.0.1:1/numbers.gz"


class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.requested.append(self.path)  # type: ignore[attr-defined]
        super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def served(handler: Callable[..., http.server.BaseHTTPRequestHandler]) -> Iterator[tuple[str, list[str]]]:
    """Serve on loopback; yield the address and the list of requested paths."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        httpd.daemon_threads, httpd.requested = True, []  # type: ignore[attr-defined]
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}/", httpd.requested  # type: ignore[attr-defined]
        httpd.shutdown()


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """The address of the packed file, and the requested paths."""
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / "numbers.gz").write_bytes(PACKED)
    with served(partial(Handler, directory=str(tmp_path / "mirror"))) as (address, requested):
        yield f"{address}numbers.gz", requested


def test_a_missing_file_is_downloaded_once_and_checked(tmp_path: Path, mirror: tuple[str, list[str]]) -> None:
    """The first address refuses connections."""
    address, requested = mirror
    path = tmp_path / "new" / "folder" / "numbers.gz"
    for _ in range(2):
        assert fetch("root", FILE, path, [NOWHERE, address]) == CONTENT
    assert (path.read_bytes(), requested) == (PACKED, ["/numbers.gz"])
    assert sorted(file.name for file in path.parent.iterdir()) == [".download.lock", "numbers.gz"]
    with pytest.raises(ConfigError, match=f"numbers.gz: HTTP Error 404.*{NOWHERE}: .*Connection refused"):
        fetch("root", FILE, tmp_path / "other", [address.replace("numbers", "missing/numbers"), NOWHERE])


@pytest.mark.parametrize(
    ("name", "damaged", "reason"),
    [
        ("numbers", CONTENT[:-1], f"expected 10240 bytes, SHA-256 {FILE.sha256}; found 10239,"),
        ("numbers", b"", "found 0,"),
        ("numbers", CONTENT[:5000] + b"\0" + CONTENT[5001:], "found 10240,"),
        ("numbers.gz", PACKED[:200], "Compressed file ended before"),
        ("numbers.gz", PACKED[:10] + bytes([255]) + PACKED[11:], "while decompressing data"),
    ],
    ids=["short", "empty", "bit", "half", "flipped"],
)
def test_a_damaged_file_is_named_and_unchanged(name: str, damaged: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(damaged)
    with pytest.raises(
        ConfigError, match=rf"^data.root=root: .*/{name} cannot be read or downloaded .*{reason}.*; write data=digits"
    ):
        fetch("root", FILE, tmp_path / name, [NOWHERE])
    assert (tmp_path / name).read_bytes() == damaged


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "numbers").mkdir()
    with pytest.raises(ConfigError, match=r"^data.root=root: .*/numbers cannot be read or downloaded .*Is a dir"):
        fetch("root", FILE, tmp_path / "numbers", [NOWHERE])


def test_a_damaged_download_is_not_saved(tmp_path: Path, mirror: tuple[str, list[str]]) -> None:
    with pytest.raises(ConfigError, match=re.escape(mirror[0]) + r": expected 10240 bytes, SHA-256 0; fo"):
        fetch("root", FILE._replace(sha256="0"), tmp_path / "numbers.gz", [mirror[0]])
    assert not (tmp_path / "numbers.gz").exists()


def test_no_more_is_read_than_a_file_has() -> None:
    """A small gzip file may unpack to gigabytes of zeros."""
    bomb = io.BytesIO(gzip.compress(bytes(2**24)))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=f"^expected 10240 bytes, SHA-256 {FILE.sha256}; found more, "):
            FILE.read(bomb, "numbers.gz")
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_processes_that_start_together_download_once(tmp_path: Path, mirror: tuple[str, list[str]]) -> None:
    """Their lock keeps threads apart, too."""
    address, requested = mirror
    with ThreadPoolExecutor() as pool:
        contents = pool.map(lambda _: fetch("root", FILE, tmp_path / "new" / "numbers.gz", [address]), range(3))
        assert [bytes(content) for content in contents] == [CONTENT] * 3
    assert requested == ["/numbers.gz"]


class Trickle(Handler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            for _ in range(300):
                self.wfile.write(b"x")
                time.sleep(0.1)


def test_a_mirror_that_trickles_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends a byte now and then, so the limit between two bytes never ends it."""
    monkeypatch.setattr("lockstep.datamodules.download.DOWNLOAD_LIMIT", 0.5)
    began = time.monotonic()
    with served(Trickle) as (address, _), pytest.raises(ConfigError, match=r"bytes within 0\.5 s"):
        fetch("root", FILE, tmp_path / "numbers", [address])
    assert time.monotonic() - began < 10


def test_a_lock_of_another_process_is_awaited_for_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep.datamodules.download.DOWNLOAD_LIMIT", 0.05)
    with FileLock(tmp_path / ".download.lock"), pytest.raises(ConfigError, match=r"lock.* could not be acquired"):
        fetch("root", FILE, tmp_path / "numbers", [NOWHERE])
