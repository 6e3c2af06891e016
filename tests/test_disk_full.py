"""A full disk: an error with the folder and the reason; earlier checkpoints stay intact."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.launch.disk import disk_errors_as_config_errors
from tests.checkpoints import net_state
from tests.conftest import Command, Ended

SMALL = (
    "data=points",
    "data.samples=37",
    "batch_size=8",
    "model.net.hidden=[4]",
    "hydra.run.dir=run",
    "accelerator=cpu",
)


def check_error(ended: Ended) -> None:
    folder = ended.folder / "run"
    assert ended.status == 2, ended.err
    assert ended.err == (
        f"hydra.run.dir={folder}: the run's files cannot be written there (No space left on device); "
        "write a folder with room for it that you may write to; checkpoints that were saved are kept.\n"
    )
    assert not list(ended.folder.rglob("*.part"))


def test_metrics_that_cannot_be_written(command: Command) -> None:
    """A device that is always full lies where they are first written to."""
    run = command.folder / "run"
    run.mkdir()
    (run / ".metrics.json.part").symlink_to("/dev/full")
    check_error(command.train(*SMALL, "logger=none", "max_epochs=1"))
    assert not (run / "metrics.json").exists()
    assert net_state(run / "checkpoints" / "last.ckpt")


@pytest.fixture
def small_disk(command: Command) -> Iterator[str]:
    """A file system of 8 KiB as the run's folder."""
    folder = command.folder / "run"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8k", "none", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"needs the right to mount a file system: {mounted.stderr.strip()}")
    try:
        yield str(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.slow
def test_a_small_disk(command: Command, small_disk: str) -> None:
    """First TensorBoard, or the record, finds no room; on a larger one the second or third checkpoint."""
    line = (*SMALL, "strategy=ddp", "devices=2", "max_epochs=60")
    check_error(command.train(*line))
    subprocess.run(["mount", "-o", "remount,size=64k", small_disk], check=True)
    check_error(command.train(*line, "logger=none"))
    last = Path(small_disk) / "checkpoints" / "last.ckpt"
    assert net_state(last)


def test_a_file_that_code_of_the_user_misses_is_no_error_of_the_disk(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), disk_errors_as_config_errors(tmp_path):
        (tmp_path / "missing").read_text()
