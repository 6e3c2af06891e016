"""MNIST's files: found in the usual places, rejected if damaged, downloaded once. The server here is real."""

import contextlib
import gzip
import http.server
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from torchvision.datasets import MNIST

from lockstep.config_error import ConfigError
from lockstep.data import mnist as mnist_files
from lockstep.data.mnist import load, prepare
from tests.conftest import Command

NAMES = [file.name for file in mnist_files.FILES]
IMAGES = "train-images-idx3-ubyte"


def pack(content: bytes) -> bytes:
    return gzip.compress(content, compresslevel=1)


@pytest.fixture
def raw(mnist: str, tmp_path: Path) -> Path:
    """A copy of the four files; `data.root` is two folders above."""
    return Path(shutil.copytree(Path(mnist) / "MNIST" / "raw", tmp_path / "MNIST" / "raw"))


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
def mirror(mnist: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a mirror."""
    folder = tmp_path_factory.mktemp("mirror")
    for name in NAMES:
        (folder / f"{name}.gz").write_bytes(pack((Path(mnist) / "MNIST" / "raw" / name).read_bytes()))
    return folder


def test_the_real_files_load_as_torchvision_reads_them(mnist: str) -> None:
    prepare(mnist)
    tensors = load(mnist, val_size=5000, mean=0.1307, std=0.3081)
    reference = MNIST(mnist, train=True)
    assert torch.equal(tensors.train.inputs[:, 0], reference.data[:55_000])
    assert torch.equal(tensors.val.targets, reference.targets[55_000:])
    assert torch.equal(tensors.test.inputs[:, 0], MNIST(mnist, train=False).data)
    storages = [split.inputs.untyped_storage() for split in (tensors.train, tensors.val)]
    assert storages[0].data_ptr() == storages[1].data_ptr(), "images are in memory once"
    assert storages[0].nbytes() == 60_000 * 784
    assert len(load(mnist, val_size=0, mean=0.0, std=1.0).train) == 60_000
    few = load(mnist, val_size=5000, mean=0.1307, std=0.3081, samples=300)
    assert torch.equal(few.train.inputs[:, 0], reference.data[:300])
    assert torch.equal(few.val.targets, tensors.val.targets)


@pytest.mark.parametrize("folder", ["MNIST/raw", "raw", "."])
def test_packed_files_are_found_in_the_usual_places(mirror: Path, tmp_path: Path, folder: str) -> None:
    shutil.copytree(mirror, tmp_path / folder, dirs_exist_ok=True)
    prepare(str(tmp_path))
    assert len(load(str(tmp_path), 0, 0.0, 1.0).test) == 10_000


def with_byte(content: bytes, index: int, change: int) -> bytes:
    return content[:index] + bytes([content[index] ^ change]) + content[index + 1 :]


@pytest.mark.parametrize(
    ("suffix", "damage", "reason"),
    [
        ("", lambda content: content[:-1], "expected 47040016 bytes, found 47040015"),
        ("", lambda _: b"", "expected 47040016 bytes, found 0"),
        ("", partial(with_byte, index=2, change=0x05), "expected SHA-256 ba891046"),  # the magic of doubles
        ("", partial(with_byte, index=23_520_008, change=1), "expected SHA-256 ba891046"),
        (".gz", lambda content: pack(content)[:1_000_000], "cannot be read (Compressed file ended before"),
    ],
    ids=["short", "empty", "magic", "bit", "half"],
)
def test_a_damaged_file_is_named_and_unchanged(
    raw: Path, suffix: str, damage: Callable[[bytes], bytes], reason: str
) -> None:
    damaged = damage((raw / IMAGES).read_bytes())
    (raw / IMAGES).unlink()
    (raw / f"{IMAGES}{suffix}").write_bytes(damaged)
    with pytest.raises(ConfigError) as raised:
        prepare(str(raw.parents[1]))
    assert IMAGES in str(raised.value)
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)
    assert (raw / f"{IMAGES}{suffix}").read_bytes() == damaged


@pytest.mark.parametrize("packed", [True, False], ids=["gzip", "plain"])
def test_six_gigabytes_in_place_of_a_file_are_not_read(tmp_path: Path, packed: bool) -> None:
    """A gzip file of 6 MB that unpacks to 6 GB of zeros, or a file with a hole of that size."""
    for name in NAMES[1:]:
        (tmp_path / name).write_bytes(b"")
    bomb = tmp_path / (IMAGES + (".gz" if packed else ""))
    with bomb.open("wb") as file:
        if packed:
            file.writelines([gzip.compress(bytes(2**26))] * 96)
        else:
            file.truncate(96 * 2**26)
    assert bomb.stat().st_blocks * 512 < 10**7
    code = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2 * 10**9, -1))\n"
    code += "from lockstep.data import mnist\nfrom lockstep.config_error import ConfigError\n"
    code += f"try:\n    mnist.prepare({str(tmp_path)!r})\nexcept ConfigError as error:\n    print(error)"
    began = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.stdout == (
        f"data=mnist: {bomb} is damaged: expected 47040016 bytes, found more; "
        "replace it by MNIST's own, or write data=digits, which needs no file.\n"
    ), ended.stderr
    assert time.monotonic() - began < 20


def test_missing_files_are_downloaded_once_and_checked(
    mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(partial(Handler, directory=str(mirror))) as (address, requested):
        monkeypatch.setattr(MNIST, "mirrors", ["http://127.0.0.1:1/", address])  # the first refuses connections
        prepare(str(tmp_path))
        prepare(str(tmp_path))
    assert sorted(requested) == sorted(f"/{name}.gz" for name in NAMES)
    assert len(load(str(tmp_path), 0, 0.0, 1.0).train) == 60_000
    assert not list((tmp_path / "MNIST" / "raw").glob("*.part"))


PREPARE_FROM = """
import sys
from torchvision.datasets import MNIST
from lockstep.data import mnist
MNIST.mirrors = [sys.argv[1]]
mnist.prepare(sys.argv[2])
"""


def test_processes_that_start_together_download_once(mirror: Path, command: Command, tmp_path: Path) -> None:
    with served(partial(Handler, directory=str(mirror))) as (address, requested):
        line = (sys.executable, "-c", PREPARE_FROM, address, str(tmp_path))
        ended = [command.wait(process) for process in [command.popen(*line) for _ in range(2)]]
    assert [one.status for one in ended] == [0, 0], ended
    assert sorted(requested) == sorted(f"/{name}.gz" for name in NAMES)


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
    monkeypatch.setattr("lockstep.data.download.DOWNLOAD_LIMIT", 0.5)
    began = time.monotonic()
    with served(Trickle) as (address, _):
        monkeypatch.setattr(MNIST, "mirrors", [address])
        with pytest.raises(ConfigError, match=r"bytes within 0\.5 s"):
            prepare(str(tmp_path))
    assert time.monotonic() - began < 10


def test_a_lock_of_another_process_is_awaited_for_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep.data.download.DOWNLOAD_LIMIT", 0.05)
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    with FileLock(folder / ".download.lock"), pytest.raises(ConfigError, match="another process holds"):
        prepare(str(tmp_path))


def test_a_root_that_is_a_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="it is a file"):
        prepare(str(tmp_path / "file"))
