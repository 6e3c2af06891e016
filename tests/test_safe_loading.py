"""What a checkpoint may hold: what modules keep is there again, and nothing of anybody's runs as a file is loaded."""

import datetime
import io
import os
from collections import defaultdict, deque
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import nn

from lockstep.base.safe_loading import load
from lockstep.runs.checkpoint.saving import loadable


def packed(value: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


@pytest.mark.parametrize(
    "value",
    [
        np.float64(0.1),
        frozenset({1}),
        Path("/data"),
        datetime.datetime(2026, 1, 2),
        np.random.default_rng(0).bit_generator.state,
    ],
    ids=lambda saved: type(saved).__name__,
)
def test_values_are_loaded(value: Any) -> None:
    assert load(packed(value)) == value
    assert type(load(packed(value))) is type(value)


@pytest.mark.parametrize("kind", ["f4", "?", "U3", "M8[s]"])
def test_arrays_are_loaded(kind: str) -> None:
    saved = np.array([[0, 1], [2, 3]]).astype(kind)
    loaded = load(packed(saved))
    assert loaded.dtype == saved.dtype
    assert np.array_equal(loaded, saved)


class Hostile:
    """An object that creates a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("wrapped", [False, True])
def test_no_code_is_executed(wrapped: bool, tmp_path: Path) -> None:
    """Neither directly nor within an array of objects."""
    saved: Any = Hostile(tmp_path / "ran")
    file = packed(np.array([saved], dtype=object) if wrapped else saved)
    with pytest.raises(Exception, match="Weights only load failed"):
        load(file)
    assert not (tmp_path / "ran").exists()
    file.seek(0)
    torch.load(file, weights_only=False)  # the control
    assert (tmp_path / "ran").exists()


def test_other_values_of_a_module_are_left_out_with_a_notice(capsys: pytest.CaptureFixture[str]) -> None:
    saved = {"array": np.zeros(1), "counts": defaultdict(list), "mixed": {"kept": 1, "lost": deque([1])}}
    assert loadable(saved).keys() == {"array", "mixed"}
    assert loadable(saved)["mixed"] == {"kept": 1}
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in said] == [
        "checkpoints hold no defaultdict of counts",
        "checkpoints hold no lost of mixed",
    ]


class Configured(pl.LightningModule):
    """Its hyper-parameters are mappings and lists of a configuration."""

    def __init__(self, net: dict[str, Any], sizes: list[int], options: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.save_hyperparameters()


def test_containers_that_hydra_passes_are_saved_as_plain_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"net": {"width": "${sizes}"}, "sizes": [1, 2], "options": {"rates": [{"value": 0.1}]}}
    module = instantiate(OmegaConf.create({"_target_": f"{__name__}.Configured", **options}))
    assert OmegaConf.is_config(module.hparams["sizes"])  # the control
    torch.save(loadable({"hyper_parameters": dict(module.hparams)}), tmp_path / "last.ckpt")
    saved = torch.load(tmp_path / "last.ckpt", weights_only=True)["hyper_parameters"]
    assert saved == {**options, "net": {"width": [1, 2]}}
    assert not capsys.readouterr().err


class Wrapping(pl.LightningModule):
    """Its hyper-parameters are a net, a partial and a number, as in lightning-hydra-template."""

    def __init__(self, net: nn.Module, optimizer: Any, width: int = 1) -> None:
        super().__init__()
        self.save_hyperparameters(logger=False)
        self.net = net


@pytest.mark.filterwarnings("ignore:Attribute 'net' is an instance")
def test_a_module_is_loaded_with_the_nets_and_partials_that_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = Wrapping(nn.Linear(2, 3), partial(torch.optim.Adam, lr=0.1), width=4)
    saved = {
        "state_dict": module.state_dict(),
        "hyper_parameters": dict(module.hparams),
        "pytorch-lightning_version": "2.6.0",
    }
    torch.save(loadable(saved), tmp_path / "last.ckpt")
    assert "no net, optimizer of hyper_parameters: " in (said := capsys.readouterr().err)
    assert said.endswith("; lockstep.load(RUN) creates them again\n")
    loaded = Wrapping.load_from_checkpoint(tmp_path / "last.ckpt", net=nn.Linear(2, 3), optimizer=torch.optim.SGD)
    torch.testing.assert_close(loaded.state_dict(), module.state_dict(), rtol=0, atol=0)
    assert loaded.hparams["width"] == 4
