"""A full disk: an error with the folder and the reason; earlier checkpoints stay intact."""

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch

import lockstep
from lockstep.base.config_error import ConfigError
from lockstep.launch.disk import disk_errors_as_config_errors
from lockstep.launch.failure import RankFailed
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
        f"hydra.run.dir={folder}: what the run leaves cannot be written there (No space left on device); "
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


class Faulty(pl.LightningModule):
    """Fails as a full disk does in one place of a user's code, or removes the folder of the run."""

    def __init__(self, where: str, folder: str) -> None:
        super().__init__()
        self.where, self.folder, self.net = where, folder, torch.nn.Linear(2, 1)

    def fail(self, where: str) -> None:
        if where == self.where:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        if self.where == "removes" and batch_idx == 0:
            shutil.rmtree(self.folder)
        loss: torch.Tensor = self.net(batch[0]).square().mean()
        return loss

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        self.fail("state_dict")
        return super().state_dict(*arguments, **options)

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        return [torch.ones(2)]

    def __len__(self) -> int:
        return 8

    def train_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(self, batch_size=4)  # type: ignore[arg-type]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def run_faulty(where: str, folder: Path, *words: str) -> None:
    run = f"hydra.run.dir={folder / 'run'}"
    model = partial(Faulty, where=where, folder=str(folder / "run"))
    lockstep.run(["data=none", "max_epochs=1", "threads=1", "logger=none", run, *words], model=model)


def test_an_error_of_the_users_code_is_a_failed_rank(tmp_path: Path) -> None:
    where = "state_dict"
    with pytest.raises(RankFailed, match=rf"in {where}\n(.*\n)*OSError: .*No space left on device$") as failed:
        run_faulty(where, tmp_path)
    assert "hydra.run.dir" not in str(failed.value)


def test_a_folder_that_is_removed_is_named(tmp_path: Path) -> None:
    reason = rf"^hydra.run.dir={tmp_path}/run: what the run leaves cannot be written there \(No such file"
    with pytest.raises(ConfigError, match=reason):
        run_faulty("removes", tmp_path)


def test_a_file_that_code_of_the_user_misses_is_no_error_of_the_disk(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), disk_errors_as_config_errors(tmp_path):
        (tmp_path / "missing").read_text()
