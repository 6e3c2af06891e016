"""As from a notebook: classes that no file holds, and files that are edited between two runs of one process."""

import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from lockstep import ConfigError, run
from tests.comparing import metrics_in
from tests.conftest import USER_CODE
from tests.test_user_code import QUIET

LAYERS = """
from torch import nn

class Net(nn.Module):
    def __init__(self, num_outputs, {argument}):
        super().__init__()
        self.{layer} = nn.Linear(4, {argument})
        self.last = nn.Linear({argument}, num_outputs)

    def forward(self, x):
        return self.last(self.{layer}(x) * FACTOR)

FACTOR = 2.0
"""
BLOBS = {"_target_": "strange_data.blobs", "samples": 60}
DATA = {"_target_": "lockstep.datamodules.Datasets", "dataset": BLOBS, "batch_size": "${batch_size}"}
DDP = ("strategy=ddp", "devices=2")
Train = Callable[..., Path]


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    """Runs in this process, as a notebook's cells are; returns the run's folder."""
    monkeypatch.syspath_prepend(str(USER_CODE))
    monkeypatch.syspath_prepend(str(tmp_path))
    runs: list[Path] = []

    def start(*words: str, **code: Any) -> Path:
        runs.append(tmp_path / f"run-{len(runs)}")
        run([*QUIET, "engine=raw", *words, f"hydra.run.dir={runs[-1]}"], **{"data": DATA, **code})
        return runs[-1]

    return start


def classifier(path: str, **arguments: int) -> dict[str, Any]:
    """Return the content of a YAML file that trains a plain net."""
    net = {"_target_": path, **arguments}
    return {"_target_": "lockstep.models.Classifier", "net": net, "optimizer": "${optimizer}"}


def in_main(source: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a cell defines: a module that lies in no file."""
    monkeypatch.setattr(sys.modules["__main__"], "Net", None, raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "FACTOR", None, raising=False)
    exec(source, vars(sys.modules["__main__"]))
    return vars(sys.modules["__main__"])["Net"]


MODULE = """
import torch
from lightning.pytorch import LightningModule

class Net(LightningModule):
    def __init__(self, num_classes):
        super().__init__()
        self.last = torch.nn.Linear(4, num_classes)

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self.last(batch["x"]), batch["y"])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
"""


def test_a_lightning_module_of_a_cell(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs no file, not even to be locked while data is prepared."""
    (tmp_path / "filed_module.py").write_text(MODULE)
    data = {"_target_": "strange_loaders.BlobsData"}
    net = in_main(MODULE, monkeypatch)
    models = ({"_target_": "filed_module.Net", "num_classes": 3}, functools.partial(net, num_classes=3))
    runs = [train(*DDP, model=model, data=data) for model in models]
    assert len({metrics_in(run)["digest"] for run in runs}) == 1


@pytest.mark.slow
def test_an_edited_module_counts_in_the_next_run(train: Train, tmp_path: Path) -> None:
    """Another argument, which the inspection must have read; another layer, which the ranks must have."""
    (tmp_path / "layers.py").write_text(LAYERS.format(argument="width", layer="first"))
    (tmp_path / "net_of_layers.py").write_text("from layers import Net\n")
    target = "net_of_layers.Net"
    before = (train(*DDP, model=classifier(target, width=5)) / "record.jsonl").read_text()
    (tmp_path / "layers.py").write_text(LAYERS.format(argument="neurons", layer="hidden"))
    after = (train(*DDP, model=classifier(target, neurons=5)) / "record.jsonl").read_text()
    assert ("first.weight" in before, "first.weight" in after, "hidden.weight" in after) == (True, False, True)
    with pytest.raises(ConfigError, match=r"^model.net.width=5: Net takes no such argument"):
        train(*DDP, model=classifier(target, width=5))


def local() -> type:
    class Local(nn.Module): ...

    return Local


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (
            {"model": {"_target_": "__main__.Nte"}},
            "_target_=__main__.Nte: it cannot be sent to the ranks (AttributeError: module '__main__' has no attribute",
        ),
        ({"model": local()}, "model=local.<locals>.Local: it is neither a class nor a function at the top of"),
    ],
)
def test_what_cannot_come_along(
    code: dict[str, Any], sentence: str, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_main(LAYERS.format(argument="width", layer="first"), monkeypatch)
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        train(*DDP, **code)
