"""Downloads by torchvision end within a bounded time, in a sentence."""

import socket
from pathlib import Path

import pytest
from torchvision.datasets import MNIST

from lockstep.base.config_error import ConfigError
from lockstep.datamodules.download import TIMEOUT, download


def test_a_server_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MNIST, "mirrors", ["http://127.0.0.1:1/a/", "http://127.0.0.1:1/b/"])
    with pytest.raises(ConfigError, match=rf"^data.root={tmp_path}: MNIST cannot be .*1/a/.*refused.*1/b/.*refused"):
        download(MNIST, str(tmp_path))
    assert not [*tmp_path.iterdir()], "torchvision has made MNIST/raw"


def test_a_server_that_sends_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No server here waits 15 seconds: the default of all sockets is set, and reset."""
    timeouts: list[float | None] = []

    def kind(*_: object, **__: object) -> None:
        timeouts.append(socket.getdefaulttimeout())

    download(kind, str(tmp_path))
    assert (timeouts, socket.getdefaulttimeout()) == ([TIMEOUT] * 2, None)
