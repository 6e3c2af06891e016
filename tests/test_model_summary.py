"""The summary of a net is printed once, and training is unchanged by it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import lockstep.engine
from lockstep.base.config_error import ConfigError
from lockstep.plan.plan import Plan
from tests.conftest import MakePlan
from tests.rank_helpers import ALONE
from tests.test_user_module import MODULES, SINGLE


def test_summary_of_a_module(
    make_user_plan: Callable[..., Plan], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Lightning, with sizes of an example that the module has; also one that draws trains alike without it."""
    import strange_steps  # type: ignore[import-not-found]

    forward = strange_steps.AutoEncoder.forward
    monkeypatch.setattr(strange_steps.AutoEncoder, "forward", lambda self, x: forward(self, x) + torch.randn_like(x))
    digests = []
    for asked in (True, False):
        words = (*MODULES["autoencoder"], *SINGLE, "max_epochs=1", f"model_summary={asked}".lower())
        digests.append(lockstep.engine.run(make_user_plan(*words, folder=str(asked)), ALONE)["digest"])
        out = capsys.readouterr().out
        assert (out.count("Trainable params"), "In sizes" in out) == (asked, asked)
    assert digests[0] == digests[1]


def test_summary_needs_training(make_plan: MakePlan, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="model_summary=true: it is for training, and train=false; write"):
        make_plan("train=false", f"ckpt_path={tmp_path}", "model_summary=true")
