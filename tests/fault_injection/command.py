"""The command with a rank that fails, as a user starts it: by itself or by torchrun; and what it left."""

import json
import os
import shutil
import sys
import tempfile
import time
import weakref
from dataclasses import dataclass, field
from pathlib import Path

import torch

from lockstep.runs.checkpoint.files import newest_checkpoint
from lockstep.runs.run_files import METRICS, RECORD
from tests.conftest import ROOT, Command, Ended, events_of
from tests.zygote import zygote

TRAIN = str(ROOT / "tests" / "fault_injection" / "train.py")
SMALL = (
    *("data=digits", "data.val_size=20", "data.test_size=1740", "batch_size=8", "model=mlp", "model.net.hidden=[5]"),
    *("max_epochs=3", "checkpoint.every_n_steps=2", "log_every_n_steps=1", "threads=1", "accelerator=cpu"),
    "logger.tensorboard.images=false",  # drawing takes longer than ten epochs
)
"""Five steps an epoch; checkpoints after steps 2, 4, 5, 6, 8, 10, …"""

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")


Leaves = tuple[str, list[str]]


def leaves(run_dir: Path) -> Leaves:
    """Return the digest of the weights, and the record without the line that identifies the run."""
    digest: str = json.loads((run_dir / METRICS).read_text())["digest"]
    return digest, (run_dir / RECORD).read_text().splitlines()[1:]


@dataclass
class Faulty:
    """A command of which a rank may fail as `fault` says (see faults.py).

    run: the folder of an earlier run, to resume it; else the run has a folder of its own.
    under: a program that starts the command.
    """

    folder: Path
    start: str
    fault: str = ""
    overrides: tuple[str, ...] = SMALL
    run: Path | None = None
    under: tuple[str, ...] = ()
    began: float = field(default_factory=time.time)
    temporary: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.temporary = Path(tempfile.mkdtemp(prefix="faulty-"))  # its path is short: sockets lie in it
        weakref.finalize(self, shutil.rmtree, self.temporary, ignore_errors=True)
        self.command = Command(self.folder)
        strategy = "ddp" if self.start == "torchrun" else self.start
        self.process = self.command.popen(
            *self.under,
            sys.executable,
            *(TORCHRUN if self.start == "torchrun" else ()),
            TRAIN,
            f"strategy={strategy}",
            f"devices={1 if self.start == 'single' else 2}",
            f"hydra.run.dir={self.run_dir}",
            *self.overrides,
            PYTHONPATH=os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            TMPDIR=str(self.temporary),
            FAULT=self.fault,
            FAULT_TIME=str(self.folder / "fault"),
            PYTHON_EXEC=zygote().for_scripts["PYTHON_EXEC"],
        )

    @property
    def run_dir(self) -> Path:
        return self.run or self.folder / "run"

    @property
    def fault_time(self) -> float | None:
        """The time of the failure, if there was one."""
        file = self.folder / "fault"
        return float(file.read_text() or 0) or None if file.is_file() else None

    def wait(self, timeout: float = 240) -> Ended:
        ended = self.command.wait(self.process, timeout)
        ended.seconds = time.time() - (self.fault_time or self.began)
        return ended

    def left(self, patience: float = 2) -> list[object]:
        """Return processes and temporary files that outlive the command; the latter are removed."""
        processes = self.command.survivors(patience)
        for process in processes:
            process.kill()
        files = [path for pattern in ("pymp-*", "pytorch-*") for path in self.temporary.glob(pattern)]
        shutil.rmtree(self.temporary, ignore_errors=True)
        return [*processes, *files]

    def saved_step(self) -> int | None:
        """Return the step of the newest valid checkpoint, or None if there is none."""
        newest, _damaged = newest_checkpoint([self.run_dir])
        return None if newest is None else int(torch.load(newest, weights_only=True)["global_step"])

    def curve(self) -> set[int]:
        """Return the steps of the loss's curve in TensorBoard."""
        events = events_of(self.run_dir)
        return {event.step for event in events.Scalars("train/loss_step")}
