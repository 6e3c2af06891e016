"""CIFAR-10: both versions of small archives, damaged ones, and a download from a server of this test."""

import hashlib
import http.server
import io
import pickle
import re
import tarfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lockstep.config_error import ConfigError
from lockstep.data import cifar10 as cifar10_files
from lockstep.data.cifar10 import CLASSES, RECORD, cifar10
from lockstep.data.download import DataFile
from tests.conftest import MakeUserPlan

BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def small_batches() -> dict[str, tuple[np.ndarray[Any, Any], list[int]]]:
    """Return four random images and their classes for each file."""
    generator = np.random.RandomState(0)
    pixels = {name: generator.randint(256, size=(4, RECORD - 1)).astype(np.uint8) for name in BATCHES}
    return {name: (pixels[name], [(3 * index + at) % CLASSES for at in range(4)]) for index, name in enumerate(BATCHES)}


def archive(path: Path, folder: str, contents: dict[str, bytes]) -> None:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def binary_archive(folder: Path, **replaced: bytes) -> Path:
    """Save the binary version with some of its files replaced; empty ones are left out."""
    batches = {
        name: np.column_stack([np.array(labels, np.uint8), pixels]).tobytes()
        for name, (pixels, labels) in small_batches().items()
    }
    contents = {**batches, **replaced}
    path = folder / "cifar-10-binary.tar.gz"
    archive(path, "cifar-10-batches-bin", {f"{name}.bin": content for name, content in contents.items() if content})
    return path


def test_all_versions_of_cifar10_have_the_same_images(tmp_path: Path, make_user_plan: MakeUserPlan) -> None:
    with tarfile.open(binary_archive(tmp_path / "binary")) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    pickled = {
        name: pickle.dumps({b"data": pixels, b"labels": labels}, protocol=2)
        for name, (pixels, labels) in small_batches().items()
    }
    archive(tmp_path / "python" / "cifar-10-python.tar.gz", "cifar-10-batches-py", pickled)
    first, *others = (cifar10(str(tmp_path / name), val=3) for name in ("binary", "python", "unpacked"))
    for name, count in (("train", 17), ("val", 3), ("test", 4)):
        assert first[name][0].shape == (count, 3, 32, 32)
        for other in others:
            assert all(map(torch.equal, first[name], other[name]))
    pixels, targets = small_batches()["data_batch_1"]
    assert torch.equal(first["train"][0][2], torch.from_numpy(pixels[2]).view(3, 32, 32))
    assert first["train"][1][:4].tolist() == targets
    choice: Any = make_user_plan("data=cifar10", f"data.root={tmp_path / 'binary'}", "data.val=3", "engine=raw").data
    assert (choice.train_samples, choice.classes, choice.shape) == (17, 10, (3, 32, 32))


class Calls:
    def __reduce__(self) -> Any:
        return print, ("called",)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("torn", "Compressed file ended before the end-of-stream marker was reached"),
        (bytes(1000), "1000 bytes are not a multiple of 3073"),
        (bytes([10, *bytes(RECORD - 1)]), "pixels of shape (1, 3072) and 1 classes"),
        ("calls", "it would call builtins.print"),
        (b"", "data_batch_1 is not there"),
    ],
)
def test_a_damaged_archive_is_rejected(
    damage: str | bytes, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if damage == "calls":
        contents = {"data_batch_1": pickle.dumps({b"data": Calls()})}
        archive(tmp_path / "cifar-10-python.tar.gz", "cifar-10-batches-py", contents)
    elif isinstance(damage, bytes):
        binary_archive(tmp_path, data_batch_1=damage)
    else:
        path = binary_archive(tmp_path)
        path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ConfigError, match=re.escape(f"is damaged ({reason}); write the folder of another")):
        cifar10(str(tmp_path), val=3)
    assert capsys.readouterr().out == ""


def test_a_missing_archive_is_downloaded_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive with other bits is rejected, and nothing of it is saved."""
    content = binary_archive(tmp_path).read_bytes()

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as httpd:
        httpd.daemon_threads = True
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        monkeypatch.setattr(cifar10_files, "URL", f"http://127.0.0.1:{httpd.server_port}/")
        for length, problem in ((170_052_171, "bytes"), (len(content), "SHA-256")):
            file = cifar10_files.ARCHIVE._replace(length=length)
            monkeypatch.setattr(cifar10_files, "ARCHIVE", file)
            with pytest.raises(ConfigError, match=rf"expected .*{problem}.* found .*\); put it into "):
                cifar10(str(tmp_path / "wrong"))
        assert not (tmp_path / "wrong" / "cifar-10-binary.tar.gz").exists()
        served = DataFile("cifar-10-binary.tar.gz", len(content), hashlib.sha256(content).hexdigest())
        monkeypatch.setattr(cifar10_files, "ARCHIVE", served)
        assert len(cifar10(str(tmp_path / "new"), val=3)["train"][0]) == 17
        httpd.shutdown()
    assert (tmp_path / "new" / "cifar-10-binary.tar.gz").read_bytes() == content
    monkeypatch.setattr(cifar10_files, "URL", "http://127.0.0.1:1/")
    assert len(cifar10(str(tmp_path / "new"), val=3)["train"][0]) == 17, "it is there"
    with pytest.raises(
        ConfigError,
        match=r"\(http://127.0.0.1:1/: .*Connection refused.*\); put it into .*/offline, or write data=digits",
    ):
        cifar10(str(tmp_path / "offline"))
