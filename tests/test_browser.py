"""TensorBoard in a real browser: what a user who opens it finds on its pages.

The screenshots are for people: they lie in the test's folder, or in $LOCKSTEP_SCREENSHOTS.
"""

import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command, free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update"),
    *("--disable-background-networking", "--disable-sync", "--window-size=1400,900"),
)
SMALL = ("data=digits", "model.hidden=[32]", "threads=1", "max_epochs=4", "log_every_n_steps=5")
READ = """
const words = [];
const walk = node => {
  if (node.nodeType === 3) { words.push(node.textContent.trim()); return; }
  if (['STYLE', 'SCRIPT', 'TEMPLATE'].includes(node.nodeName)) return;
  if (node.shadowRoot) node.shadowRoot.childNodes.forEach(walk);
  node.childNodes.forEach(walk);
};
walk(document.body);
return words.filter(word => word).join(' ');
"""
"""All that a page says, within its components too."""


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs pip install selenium")
    chromium, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for word in (*QUIET, f"--user-data-dir={tmp_path / 'browser'}"):
        options.add_argument(word)
    opened = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield opened
    opened.quit()


class Board:
    """TensorBoard over the runs of a folder, and the browser that looks at it."""

    def __init__(self, browser: Any, port: int, shots: Path) -> None:
        self.browser, self.address, self.shots = browser, f"http://127.0.0.1:{port}", shots

    def page(self, name: str, *expected: str) -> str:
        """What a page says once it says all that is expected; a screenshot is taken of it."""
        self.browser.get("about:blank")
        self.browser.get(f"{self.address}/#{name}")
        deadline, said = time.monotonic() + 60, ""
        while not all(word in said for word in expected):
            assert time.monotonic() < deadline, f"{name}: {[word for word in expected if word not in said]} in {said}"
            time.sleep(0.5)
            said = self.browser.execute_script(READ).replace(" /", "/")  # a tag is in two parts
        time.sleep(2)  # the charts are drawn
        self.browser.save_screenshot(str(self.shots / f"{name}.png"))
        return said


@pytest.fixture
def board(browser: Any, command: Command) -> Iterator[Board]:
    """Over a run of both engines and a sweep over two rates."""
    for words in (("engine=both",), ("-m", "optimizer.lr=0.001,0.01")):
        ended = command.train(*words, *SMALL)
        assert ended.status == 0, ended.err
    shots = Path(os.environ.get("LOCKSTEP_SCREENSHOTS", command.folder / "screenshots"))
    shots.mkdir(parents=True, exist_ok=True)
    port = free_port()
    line = (sys.executable, "-m", "tensorboard.main", "--logdir", "logs", "--port", str(port), "--host", "127.0.0.1")
    served = command.fresh.popen(*line)
    try:
        wait_for(port)
        yield Board(browser, port, shots)
    finally:
        served.terminate()
        served.communicate(timeout=30)


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "TensorBoard does not answer"
            time.sleep(0.2)


def test_what_a_user_finds(board: Board) -> None:
    names = ("lightning single mlp", "raw single mlp", "difference single mlp", "single mlp lr=0.001", "lr=0.01 ·")
    said = board.page("timeseries", "difference/largest", *names)
    assert "final/" not in said
    trial = "single mlp lr=0.001 · "
    hparams = board.page("hparams", "optimizer.lr", "model.hidden", "test/acc", trial)
    assert hparams.index("optimizer.lr") < hparams.index("batch_size"), "what varies comes first"
    assert "world_size" not in hparams
    assert f"/{trial}" not in hparams, "a trial begins with its name, not with a path"
    board.page("text", "python train.py", "identical; expected: identical", "run/environment")
    board.page("custom_scalars", "training and validation", "acc", "seconds by phase")
    board.page("images", "val/confusion", "val/worst", "weights/first layer")
