"""CIFAR-10: a small archive of its binary version."""

import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lockstep.datamodules import CIFAR10
from lockstep.datamodules import cifar10 as cifar10_files
from lockstep.datamodules.cifar10 import ARCHIVE, CLASSES, RECORD
from lockstep.datamodules.download import DataFile
from tests.conftest import MakeUserPlan

BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def test_images_and_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_user_plan: MakeUserPlan) -> None:
    """Four random images in each file, which the archive has in another order, beside a text."""
    records = np.random.RandomState(0).randint(10, size=(6, 4, RECORD)).astype(np.uint8)
    contents = {f"{name}.bin": rows.tobytes() for name, rows in zip(BATCHES, records, strict=True)}
    with tarfile.open(tmp_path / ARCHIVE.name, "w:gz") as tar:
        for name, content in [("batches.meta.txt", b"airplane"), *reversed(contents.items())]:
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    archive = (tmp_path / ARCHIVE.name).read_bytes()
    small = DataFile(ARCHIVE.name, len(archive), hashlib.sha256(archive).hexdigest())
    monkeypatch.setattr(cifar10_files, "ARCHIVE", small)
    data = CIFAR10(str(tmp_path), val_size=3)
    data.prepare_data()
    data.setup()
    rows = torch.from_numpy(records.reshape(-1, RECORD))
    for name, part in (("train", rows[:17]), ("val", rows[17:20]), ("test", rows[20:])):
        assert torch.equal(data.splits[name][0], part[:, 1:].view(-1, 3, 32, 32))
        assert torch.equal(data.splits[name][1], part[:, 0].long())
    overrides = ("data=cifar10", f"data.root={tmp_path}", "data.val_size=3", "engine=raw", "strategy.in_process=true")
    choice: Any = make_user_plan(*overrides).data
    assert (choice.train_samples, choice.num_classes, choice.sample_shape) == (17, 10, (3, 32, 32))
    assert choice.class_names == CLASSES
