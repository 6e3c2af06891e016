"""What a checkpoint may hold: what modules keep is there again, and nothing of anybody's runs as a file is loaded."""

import datetime
import io
import os
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lockstep.safe_loading import load
from lockstep.schemas.engine import ENGINES
from lockstep.session.loadable import loadable
from tests.conftest import MakeOwn
from tests.test_own_module import MODULES, SINGLE
from tests.test_resume import same_after_kill, start


def packed(value: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


@pytest.mark.parametrize(
    "value",
    [
        np.float64(0.1),
        np.int64(2**60),
        np.bool_(True),
        frozenset({1}),
        Path("/data"),
        datetime.datetime(2026, 1, 2),
        datetime.timedelta(1),
        np.random.default_rng(0).bit_generator.state,
    ],
    ids=lambda own: type(own).__name__,
)
def test_values_are_there_again(value: Any) -> None:
    assert load(packed(value)) == value
    assert type(load(packed(value))) is type(value)


@pytest.mark.parametrize("kind", ["f4", "f8", "i8", "u1", "?", "c16", "U3", "M8[s]"])
def test_arrays_are_there_again(kind: str) -> None:
    own = np.array([[0, 1], [2, 3]]).astype(kind)
    again = load(packed(own))
    assert again.dtype == own.dtype
    assert np.array_equal(again, own)


class Running:
    """Runs a command where it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("wrapped", [False, True])
def test_nothing_runs(wrapped: bool, tmp_path: Path) -> None:
    """Neither by itself nor within an array of objects."""
    own: Any = Running(tmp_path / "ran")
    file = packed(np.array([own], dtype=object) if wrapped else own)
    with pytest.raises(Exception, match="Weights only load failed"):
        load(file)
    assert not (tmp_path / "ran").exists()
    file.seek(0)
    torch.load(file, weights_only=False)  # the control
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_module_that_keeps_arrays(engine: str, make_own: MakeOwn, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its on_save_checkpoint puts in, its on_load_checkpoint looks at."""
    job = (*MODULES["autoencoder"], *SINGLE, "checkpoint.every_n_steps=2")
    plan = make_own(*job, f"engine={engine}")
    same_after_kill(plan, 7, start(plan, monkeypatch), monkeypatch)


def test_what_else_a_module_keeps_is_left_out_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    own = {"array": np.zeros(1), "counts": defaultdict(list), "mixed": {"kept": 1, "lost": deque([1])}}
    assert loadable(own).keys() == {"array", "mixed"}
    assert loadable(own)["mixed"] == {"kept": 1}
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in said] == [
        "checkpoints hold no defaultdict of counts",
        "checkpoints hold no lost of mixed",
    ]
