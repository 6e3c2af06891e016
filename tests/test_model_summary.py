"""The table of a net's layers: what it counts, and that training is unchanged by it in both engines."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lockstep.config_error import ConfigError
from lockstep.launch.topology import RankContext
from lockstep.loggers import Loggers
from lockstep.monitor.model_summary import layers_of, summary_text
from lockstep.monitor.net import Example, show_net
from lockstep.plan import Plan
from lockstep.schemas.engine import ENGINES
from tests.conftest import MakePlan
from tests.rank_helpers import ENGINES as RUN
from tests.test_user_module import MODULES, SINGLE

SMALL = ("model.hidden=[8]", "max_epochs=1", "threads=1", "test=false", "trainer.limit_train_batches=2")


class Net(nn.Module):
    """It draws in its forward, counts its calls in a buffer, and has one weight in two layers."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
        self.again.weight = self.first.weight
        self.recurrent = nn.LSTM(16, 16, bias=False, batch_first=True)
        self.attention = nn.TransformerEncoderLayer(16, 2, dim_feedforward=16, bias=False, batch_first=True)
        self.scale = nn.Parameter(torch.eye(16), requires_grad=False)
        self.unused = nn.Linear(2, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        y = self.attention(self.recurrent(self.again(self.first(x)))[0]) @ self.scale
        return y + torch.randn_like(y), y


def test_parameters_and_flops_of_layers() -> None:
    """A product of (n, k) and (k, m) is 2 n k m operations; torch counts none of an LSTM or attention in one piece."""
    net = Net().eval()
    with torch.no_grad():
        layers = {layer.name: layer for layer in layers_of(net, lambda: net(torch.zeros(1, 3, 16)))}
    product = 2 * 3 * 16 * 16
    assert layers["(itself)"].flops == layers["first"].flops == layers["again"].flops == product
    assert (layers["first"].parameters, layers["again"].parameters) == (256, 0), "one weight counts once"
    assert (layers["recurrent"].flops, layers["recurrent"].output) == (8 * product, "1×3×16")
    attention = sum(layer.flops for name, layer in layers.items() if name.startswith("attention"))
    assert attention == 4 * product + 2 * product + 2 * 2 * 3 * 3 * 16, "projections, two layers, scores and values"
    assert (layers["unused"].flops, layers["unused"].output, layers["unused"].parameters) == (0, "", 9)
    assert sum(layer.parameters for layer in layers.values()) == sum(weight.numel() for weight in net.parameters())
    assert not net.first._forward_hooks, "none is left"


def test_text_of_the_table() -> None:
    net = nn.Sequential(nn.Sequential(nn.Linear(784, 1000), nn.Sequential(nn.ReLU(), nn.Linear(1000, 1000))))
    text = summary_text("a title", layers_of(net, lambda: net(torch.zeros(1, 784))), 7)
    assert {"Linear", "1×1000", "1,001,000", "total", "3.57"} <= {*text.split()}


def test_net_and_generators_are_unchanged(make_plan: MakePlan, capsys: pytest.CaptureFixture[str]) -> None:
    plan, net = make_plan("model_summary=true", "logger=none"), Net()
    net.first.eval()
    before = torch.get_rng_state()
    show_net(plan, Loggers(plan, 0, []), net, Example((torch.zeros(1, 3, 16),)), torch.device("cpu"))
    assert "3,881 of 4,137 parameters are trained" in capsys.readouterr().out, "scale is not"
    assert torch.equal(torch.get_rng_state(), before)
    assert (net.training, net.first.training, int(net.calls)) == (True, False, 0)
    show_net(plan, Loggers(plan, 1, []), net, Example((torch.zeros(1, 3, 16),)), torch.device("cpu"))
    assert not capsys.readouterr().out, "above rank 0"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("name", "job", "said"),
    [
        ("a plain net", SMALL, "mlp: forward of an example"),
        ("a plain net with callbacks", (*SMALL, "callbacks=timer"), "mlp: forward of an example"),
        ("a LightningModule", MODULES["autoencoder"], "AutoEncoder: forward of an example"),
        ("one without an example", MODULES["classifier"], "Classifier: parameters"),
    ],
)
def test_summary_of_each_kind_of_net(
    name: str,
    job: tuple[str, ...],
    said: str,
    engine: str,
    make_user_plan: Callable[..., Plan],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Printed before the first epoch's line, once; with and without it the same losses."""
    digests = []
    for asked in (True, False):
        words = (*job, *SINGLE, f"engine={engine}", "max_epochs=1", f"model_summary={asked}".lower())
        plan = make_user_plan(*words, folder=str(asked))
        digests.append(RUN[engine](plan, RankContext(0, 1, 0, 1))["digest"])
        out = capsys.readouterr().out
        assert (out.count(said), out.count("parameters are trained")) == (asked, asked)
        assert not asked or out.index(said) < out.index("epoch 1/1")
    assert digests[0] == digests[1]


def test_summary_needs_training(make_plan: MakePlan, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="model_summary=true: it is printed before training; write"):
        make_plan("train=false", f"ckpt_path={tmp_path}", "model_summary=true")
