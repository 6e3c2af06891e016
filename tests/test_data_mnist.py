"""MNIST's files: found wherever they lie, refused where they are damaged, downloaded once. The server here is real."""

import contextlib
import gzip
import hashlib
import http.server
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from torchvision.datasets import MNIST

from lockstep.config_error import ConfigError
from lockstep.data import mnist
from tests.conftest import Command

NAMES = [file.name for file in mnist.FILES]
GZ = {"compresslevel": 1}


@pytest.fixture
def copy(mnist: str, tmp_path: Path) -> Path:
    """A folder of one's own with the four files, as `data.root`."""
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name in NAMES:
        (raw / name).write_bytes((Path(mnist) / "MNIST" / "raw" / name).read_bytes())
    return tmp_path


@pytest.fixture
def server(mnist: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str], Path]]:
    """A mirror on loopback: its address, the paths it was asked for, its folder."""
    folder = tmp_path_factory.mktemp("mirror")
    for name in NAMES:
        packed = gzip.compress((Path(mnist) / "MNIST" / "raw" / name).read_bytes(), **GZ)
        (folder / f"{name}.gz").write_bytes(packed)
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(folder))  # type: ignore[arg-type]

        def do_GET(self) -> None:
            asked.append(self.path)
            super().do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}/", asked, folder
        httpd.shutdown()
        thread.join()


def test_the_real_files_load_as_torchvision_reads_them(mnist: str) -> None:
    from lockstep.data.mnist import load, prepare

    prepare(mnist)
    tensors = load(mnist, val_size=5000, mean=0.1307, std=0.3081)
    theirs = MNIST(mnist, train=True)
    assert torch.equal(tensors.train.inputs[:, 0], theirs.data[:55_000])
    assert torch.equal(tensors.val.targets, theirs.targets[55_000:])
    assert torch.equal(tensors.test.inputs[:, 0], MNIST(mnist, train=False).data)
    assert len(load(mnist, val_size=0, mean=0.0, std=1.0).train) == 60_000
    few = load(mnist, val_size=5000, mean=0.1307, std=0.3081, samples=300)
    assert torch.equal(few.train.inputs[:, 0], theirs.data[:300])
    assert torch.equal(few.val.targets, tensors.val.targets)


def test_images_are_held_once(mnist: str) -> None:
    from lockstep.data.mnist import load

    tensors = load(mnist, val_size=5000, mean=0.1307, std=0.3081)
    assert tensors.train.inputs.untyped_storage().data_ptr() == tensors.val.inputs.untyped_storage().data_ptr()
    assert tensors.train.inputs.untyped_storage().nbytes() == 60_000 * 784


@pytest.mark.parametrize("folder", ["MNIST/raw", "raw", "."])
def test_gz_files_are_found_in_each_usual_place(
    copy: Path, tmp_path_factory: pytest.TempPathFactory, folder: str
) -> None:
    root = tmp_path_factory.mktemp("packed")
    (root / folder).mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        packed = gzip.compress((copy / "MNIST" / "raw" / name).read_bytes(), **GZ)
        (root / folder / f"{name}.gz").write_bytes(packed)
    mnist.prepare(str(root))
    assert len(mnist.load(str(root), 0, 0.0, 1.0).test) == 10_000


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def change_the_magic(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[2] = 0x0D  # idx of doubles
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def pack_half(path: Path) -> None:
    packed = gzip.compress(path.read_bytes(), **GZ)
    path.unlink()
    path.with_name(path.name + ".gz").write_bytes(packed[: len(packed) // 2])


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (truncate, "expected 47040016 bytes, found 47040015"),
        (empty, "expected 47040016 bytes, found 0"),
        (change_the_magic, "expected SHA-256 ba891046"),
        (flip_a_bit, "expected SHA-256 ba891046"),
        (pack_half, "expected a whole gzip file, found"),
    ],
)
def test_a_damaged_file_is_named_and_left_as_it_is(copy: Path, damage: Callable[[Path], None], found: str) -> None:
    damage(copy / "MNIST" / "raw" / "train-images-idx3-ubyte")
    before = {path.name: hashlib.sha256(path.read_bytes()).digest() for path in (copy / "MNIST" / "raw").iterdir()}
    with pytest.raises(ConfigError) as raised:
        mnist.prepare(str(copy))
    assert "train-images-idx3-ubyte" in str(raised.value)
    assert found in str(raised.value)
    assert "\n" not in str(raised.value)
    after = {path.name: hashlib.sha256(path.read_bytes()).digest() for path in (copy / "MNIST" / "raw").iterdir()}
    assert after == before


@pytest.mark.parametrize("packed", [True, False], ids=["gzip", "plain"])
def test_six_gigabytes_in_place_of_a_file_are_not_read(tmp_path: Path, packed: bool) -> None:
    """A gzip file of 6 MB that unpacks to 6 GB of zeros, or a file with a hole of that size."""
    for name in NAMES:
        (tmp_path / name).write_bytes(b"")
    bomb = tmp_path / ("train-images-idx3-ubyte" + (".gz" if packed else ""))
    (tmp_path / "train-images-idx3-ubyte").unlink()
    with bomb.open("wb") as file:
        if packed:
            part = gzip.compress(bytes(2**26))
            file.writelines([part] * 96)
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
    server: tuple[str, list[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, asked, _ = server
    monkeypatch.setattr(MNIST, "mirrors", ["http://127.0.0.1:1/", address])  # the first refuses connections
    mnist.prepare(str(tmp_path))
    mnist.prepare(str(tmp_path))
    assert sorted(asked) == sorted(f"/{name}.gz" for name in NAMES)
    assert len(mnist.load(str(tmp_path), 0, 0.0, 1.0).train) == 60_000
    assert not list((tmp_path / "MNIST" / "raw").glob("*.part"))


PREPARE_FROM = """
import sys
from torchvision.datasets import MNIST
from lockstep.data import mnist
MNIST.mirrors = [sys.argv[1]]
mnist.prepare(sys.argv[2])
"""


def test_processes_that_start_together_download_once(
    server: tuple[str, list[str], Path], command: Command, tmp_path: Path
) -> None:
    address, asked, _ = server
    line = (sys.executable, "-c", PREPARE_FROM, address, str(tmp_path))
    ended = [command.wait(process) for process in [command.popen(*line) for _ in range(2)]]
    assert [one.status for one in ended] == [0, 0], ended
    assert sorted(asked) == sorted(f"/{name}.gz" for name in NAMES)


def test_a_mirror_with_other_bits_is_not_believed(
    server: tuple[str, list[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, _, folder = server
    shutil.copy(folder / "t10k-labels-idx1-ubyte.gz", folder / "train-images-idx3-ubyte.gz")
    monkeypatch.setattr(MNIST, "mirrors", [address])
    with pytest.raises(ConfigError, match="its bits are not MNIST's"):
        mnist.prepare(str(tmp_path))
    assert not list((tmp_path / "MNIST" / "raw").glob("train-images*"))


def test_offline_without_files_says_where_to_put_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MNIST, "mirrors", ["http://127.0.0.1:1/"])
    with pytest.raises(ConfigError) as raised:
        mnist.prepare(str(tmp_path))
    sentence = str(raised.value)
    assert str(tmp_path / "MNIST" / "raw") in sentence
    assert "data=digits" in sentence
    assert "\n" not in sentence


def test_a_mirror_that_trickles_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends a byte now and then, so the limit between two bytes never ends it."""

    class Trickle(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                for _ in range(300):
                    self.wfile.write(b"x")
                    time.sleep(0.1)

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setattr("lockstep.data.download.DOWNLOAD_LIMIT", 0.5)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Trickle) as httpd:
        httpd.daemon_threads = True
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        monkeypatch.setattr(MNIST, "mirrors", [f"http://127.0.0.1:{httpd.server_port}/"])
        began = time.monotonic()
        with pytest.raises(ConfigError, match=r"bytes within 0\.5 s"):
            mnist.prepare(str(tmp_path))
        httpd.shutdown()
    assert time.monotonic() - began < 10


def test_a_lock_that_nobody_lets_go_is_not_awaited_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.data.download.DOWNLOAD_LIMIT", 0.05)
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    with (
        FileLock(tmp_path / "MNIST" / "raw" / ".download.lock"),
        pytest.raises(ConfigError, match="another process holds"),
    ):
        mnist.prepare(str(tmp_path))


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="it is a file"):
        mnist.prepare(str(tmp_path / "file"))
