"""The summary of a net is printed once, and training is unchanged by it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import lockstep.engine
from lockstep.base.config_error import ConfigError
from lockstep.plan.plan import Plan
from lockstep.runs.monitor import show_layers
from tests.conftest import MakePlan
from tests.rank_helpers import ALONE
from tests.test_user_module import MODULES, SINGLE

SMALL = ("model.net.hidden=[8]", "max_epochs=1", "threads=1", "test=false", "trainer.limit_train_batches=2")


class Net(nn.Module):
    """A net that draws in its forward, and counts its calls in a buffer."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.attention = nn.Linear(16, 16), nn.TransformerEncoderLayer(16, 2, 16, batch_first=True)
        self.scale = nn.Parameter(torch.eye(16), requires_grad=False)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        y = self.attention(self.first(x)) @ self.scale
        return y + torch.randn_like(y), y


def test_net_and_generators_are_unchanged(make_plan: MakePlan, capsys: pytest.CaptureFixture[str]) -> None:
    plan, net = make_plan("model_summary=true", "logger=none"), Net()
    net.first.eval()
    before = torch.get_rng_state()
    show_layers(plan, 0, net, torch.zeros(1, 3, 16), torch.device("cpu"))
    assert re.search("[0-9.]+ K +Trainable params", capsys.readouterr().out)
    assert torch.equal(torch.get_rng_state(), before)
    assert (net.training, net.first.training, int(net.calls)) == (True, False, 0)
    show_layers(plan, 1, net, torch.zeros(1, 3, 16), torch.device("cpu"))
    assert not capsys.readouterr().out, "above rank 0"


@pytest.mark.parametrize(
    ("job", "key", "text"),
    [
        (SMALL, "model_summary", "MLP: forward of an example"),
        ((*SMALL, "callbacks=timer"), "model_summary", "MLP: forward of an example"),
        (MODULES["autoencoder"], "model_summary", "AutoEncoder: forward of an example"),
        (MODULES["classifier"], "trainer.enable_model_summary", "Classifier: parameters"),
    ],
    ids=["net", "net with callbacks", "module", "module without an example"],
)
def test_summary_of_each_kind_of_net(
    job: tuple[str, ...],
    key: str,
    text: str,
    make_user_plan: Callable[..., Plan],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Printed before the first epoch's line, once; with and without it the same losses."""
    digests = []
    for asked in (True, False):
        words = (*job, *SINGLE, "max_epochs=1", f"{key}={asked}".lower())
        plan = make_user_plan(*words, folder=str(asked))
        digests.append(lockstep.engine.run(plan, ALONE)["digest"])
        out = capsys.readouterr().out
        assert (out.count(text), out.count("Trainable params")) == (asked, asked)
        assert not asked or out.index(text) < out.index("epoch 1/1")
    assert digests[0] == digests[1]


def test_summary_needs_training(make_plan: MakePlan, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="model_summary=true: it is for training, and train=false; write"):
        make_plan("train=false", f"ckpt_path={tmp_path}", "model_summary=true")
