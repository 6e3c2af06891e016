"""`lockstep.load` returns the net that a run has tested: its test metrics come out again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import lockstep
from example.lightning_module import Classifier
from lockstep import ConfigError, data
from lockstep.inference.trained_net import TrainedNet, read_run
from lockstep.run_result import RunResult
from tests.conftest import IN_PROCESS

pytestmark = IN_PROCESS

QUIET = ("logger=none", "threads=1", "max_epochs=1", "strategy.in_process=true", "engine=raw")
DIGITS = ("data.test_size=200", "data.val_size=100", "model.net.hidden=[16]")


class Scaled(nn.Module):
    """A net with a buffer, and drawn weights."""

    def __init__(self, shape: tuple[int, ...], outputs: int, width: int = 8) -> None:
        super().__init__()
        self.register_buffer("scale", torch.rand(1))
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.Dropout(0.5), nn.Linear(width, outputs))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.layers(inputs * self.scale)  # type: ignore[operator]
        return outputs


class CompilesItself(Classifier):
    """Compiles its net for training alone, as the module of lightning-hydra-template does."""

    def setup(self, stage: str) -> None:
        if stage == "fit":
            self.net: nn.Module = torch.compile(self.net, backend="eager")  # type: ignore[assignment]


def trained(folder: Path, *words: str, **user_code: Any) -> RunResult:
    return lockstep.run([*QUIET, *words, f"hydra.run.dir={folder}"], **user_code)


def scores(net: nn.Module, run: Path) -> tuple[float, float]:
    """Return the loss and the accuracy on the test split, computed by hand."""
    plan, _ = read_run(run)
    split = data.load(plan.data, plan.seed).test
    with torch.no_grad():
        outputs = net(split.inputs).float()
    return cross_entropy(outputs, split.targets).item(), (outputs.argmax(1) == split.targets).double().mean().item()


@pytest.mark.parametrize(
    "words",
    [("model.net.hidden=[16]", "engine=lightning"), ("model.net.hidden=[16]", "precision=64-true"), ("precision=bf16-mixed",)],
)
def test_it_scores_as_in_the_run(tmp_path: Path, words: tuple[str, ...]) -> None:
    result, before = trained(tmp_path / "run", *DIGITS[:2], *words), torch.get_rng_state()
    net = lockstep.load(tmp_path / "run")
    assert torch.equal(torch.get_rng_state(), before)
    assert isinstance(net, TrainedNet)
    assert not net.training
    loss, accuracy = scores(net, tmp_path / "run")
    assert loss == pytest.approx(result["test/loss"], abs=1e-6)
    assert accuracy == result["test/acc"]


def test_pixels_from_0_to_1_and_arrays_are_inputs_too(tmp_path: Path) -> None:
    trained(tmp_path, *DIGITS)
    net, images = lockstep.load(tmp_path), data.load(read_run(tmp_path)[0].data).test.inputs[:4]
    outputs = net(images)
    assert torch.equal(net(images.numpy()), outputs)
    assert torch.allclose(net(images.double().numpy() / 255), outputs, atol=1e-5)
    assert not torch.allclose(net(np.zeros((4, 1, 28, 28), np.uint8)), outputs, atol=1e-5)


def test_the_best_net_or_the_one_of_a_checkpoint(tmp_path: Path) -> None:
    result = trained(tmp_path, *DIGITS, "max_epochs=3", "optimizer.lr=0.2", "test=best")
    assert result["best_epoch"] != 3, "a rate at which the last epoch is not the best"
    best, last = (tmp_path / "checkpoints" / name for name in ("best.ckpt", "last.ckpt"))
    accuracies = {run: scores(lockstep.load(run), tmp_path)[1] for run in (tmp_path, best, last)}
    assert accuracies[tmp_path] == accuracies[best] == result["test/acc"] != accuracies[last]
    tested = trained(tmp_path / "tested", *DIGITS, "train=false", f"ckpt_path={last}")
    assert scores(tested.net(), tmp_path)[1] == accuracies[last]


def test_code_of_a_user(tmp_path: Path) -> None:
    result = trained(tmp_path / "net", *DIGITS[:2], model={"_target_": f"{__name__}.Scaled", "width": 12})
    net = lockstep.load(tmp_path / "net")
    assert net.net.layers[1].out_features == 12
    assert scores(net, tmp_path / "net")[1] == result["test/acc"]
    last = tmp_path / "net" / "checkpoints" / "last.ckpt"
    checkpoint = torch.load(last)
    checkpoint["lockstep"]["plan"] = checkpoint["lockstep"]["plan"].replace(f"{__name__}.Scaled", "__main__.Scaled")
    torch.save(checkpoint, last)
    with pytest.raises(ConfigError, match="no notebook's cell or script defines Scaled here; write its class into a"):
        lockstep.load(last)


def test_a_lightning_module_comes_back_itself(tmp_path: Path) -> None:
    result = trained(tmp_path, "model=example_module", "data=example_module", "model.width=5", "engine=both")
    module = lockstep.load(tmp_path)
    assert (type(module).__name__, module.hparams["width"], module.training) == ("Classifier", 5, False)
    saved = torch.load(tmp_path / "raw" / "checkpoints" / "last.ckpt")["state_dict"]
    assert all(torch.equal(saved[name], value) for name, value in module.state_dict().items())
    assert result.net().lr == module.lr


@pytest.mark.parametrize("engine", ["raw", "lightning"])
def test_a_module_that_compiles_its_net_in_setup(tmp_path: Path, engine: str) -> None:
    model = {"_target_": f"{__name__}.CompilesItself", "width": 5, "lr": 0.01}
    words = (f"engine={engine}", "data=example_module")
    result = trained(tmp_path / "run", *words, model=model)
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    tested = trained(tmp_path / "test", *words, "train=false", f"ckpt_path={last}", model=model)
    assert tested["test/loss"] == result["test/loss"]
    saved = torch.load(last)["state_dict"]
    for name, value in lockstep.load(last).state_dict().items():
        assert torch.equal(saved[name.replace("net.", "net._orig_mod.")], value)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nothing", "there is no run: "),
        (".", "it is a sweep of 1 jobs; write "),
        ("0", "this run has saved no checkpoint; "),
        ("0/checkpoints", "there is no run: "),
        ("0/config.yaml", "it is no complete checkpoint of this project"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / "0" / "checkpoints").mkdir(parents=True)
    (tmp_path / "0" / "config.yaml").write_text("name: train")
    with pytest.raises(ConfigError, match=sentence):
        lockstep.load(tmp_path / name)


def test_a_checkpoint_alone_is_enough_if_it_is_of_this_version_and_undamaged(tmp_path: Path) -> None:
    trained(tmp_path / "run", *DIGITS)
    last, copy = tmp_path / "run" / "checkpoints" / "last.ckpt", tmp_path / "copy.ckpt"
    expected, checkpoint = lockstep.load(tmp_path / "run").state_dict(), torch.load(last)
    copy.write_bytes(last.read_bytes())
    last.rename(last.with_name("moved.ckpt"))
    assert lockstep.load(tmp_path / "run").state_dict().keys() == expected.keys(), "of best.ckpt"
    last.write_bytes(b"garbage")
    with pytest.raises(ConfigError, match="it is no complete checkpoint of this project"):
        lockstep.load(tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "moved")
    assert all(torch.equal(expected[name], value) for name, value in lockstep.load(copy).state_dict().items())
    plan = checkpoint["lockstep"]["plan"]
    for other, sentence in (
        ('"sizes":', "it is no checkpoint of this version .*sizes"),
        ('"hidden": [99], "rest":', "it is no checkpoint of this version"),
    ):
        checkpoint["lockstep"]["plan"] = plan.replace('"hidden":', other)
        torch.save(checkpoint, copy)
        with pytest.raises(ConfigError, match=sentence):
            lockstep.load(copy)
    checkpoint["lockstep"]["plan"] = plan.replace('"hidden": [16]', '"hidden": [12]')
    torch.save(checkpoint, copy)
    with pytest.raises(ConfigError, match=r"mlp has other weights than it had in this run: size mismatch for "):
        lockstep.load(copy)
