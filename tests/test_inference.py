"""`lockstep.load` returns the module that a run has tested: its test metrics come out again."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

import lockstep
from example.lightning_module import FocalClassifier
from lockstep import ConfigError
from lockstep.command.run_result import RunResult
from lockstep.datamodules import Digits
from lockstep.models import Classifier as OurClassifier
from tests.conftest import IN_PROCESS, ROOT

pytestmark = IN_PROCESS

QUIET = ("logger=none", "threads=1", "max_epochs=1", "strategy.in_process=true")
DIGITS = ("data.test_size=200", "data.val_size=100", "model.net.hidden=[16]")


def trained(folder: Path, *words: str, **user_code: Any) -> RunResult:
    return lockstep.run([*QUIET, *words, f"hydra.run.dir={folder}"], **user_code)


def scores(module: Any) -> tuple[float, float]:
    """Return the loss and the accuracy on the test split of DIGITS, computed by hand."""
    images, classes = Digits(test_size=200, val_size=100).load()["test"]
    pixels = (images.to(module.dtype) / 255 - Digits.mean) / Digits.std
    with torch.no_grad():
        outputs = module(pixels)
    return cross_entropy(outputs, classes).item(), (outputs.argmax(1) == classes).double().mean().item()


def test_it_scores_as_in_the_run(tmp_path: Path) -> None:
    result, before = trained(tmp_path / "run", *DIGITS, "precision=64-true"), torch.get_rng_state()
    module = lockstep.load(tmp_path / "run")
    assert torch.equal(torch.get_rng_state(), before)
    assert type(module) is OurClassifier
    assert not module.training
    loss, accuracy = scores(module)
    assert loss == pytest.approx(result["test/loss"], abs=1e-6)
    assert accuracy == pytest.approx(result["test/acc"], abs=1e-6)


@pytest.mark.slow
def test_the_best_net_or_the_one_of_a_checkpoint(tmp_path: Path) -> None:
    result = trained(tmp_path, *DIGITS, "max_epochs=3", "optimizer.lr=0.2", "test=best")
    assert result["best_epoch"] != 3, "a rate at which the last epoch is not the best"
    best, last = (tmp_path / "checkpoints" / name for name in ("best.ckpt", "last.ckpt"))
    accuracies = {run: scores(lockstep.load(run))[1] for run in (tmp_path, best, last)}
    assert accuracies[tmp_path] == accuracies[best] == pytest.approx(result["test/acc"], abs=1e-6) != accuracies[last]
    tested = trained(tmp_path / "tested", *DIGITS, "train=false", f"ckpt_path={last}")
    assert scores(tested.module())[1] == accuracies[last]


def test_a_lightning_module_comes_back_itself(tmp_path: Path) -> None:
    result = trained(tmp_path, "model=example_module", "data=example_module", "model.gamma=1.5", "engine=both")
    module = lockstep.load(tmp_path)
    assert (type(module), module.hparams["gamma"], module.training) == (FocalClassifier, 1.5, False)
    saved = torch.load(tmp_path / "raw" / "checkpoints" / "last.ckpt")["state_dict"]
    assert all(torch.equal(saved[name], value) for name, value in module.state_dict().items())
    assert result.module().gamma == module.gamma


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("0", "there is no checkpoint: .*last.ckpt is missing; write the folder of a run, or one of its checkpoints"),
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
    call = checkpoint["lockstep"]["plan"]["model"]["call"]
    net = call["net"]
    differs = r"MLP has other weights than it had in this run: size mismatch for "
    for other, sentence in (("sizes", "MLP takes no such argument"), ("hidden", differs)):
        call["net"] = {**net, other: [12]}
        torch.save(checkpoint, copy)
        with pytest.raises(ConfigError, match=sentence):
            lockstep.load(copy)


@pytest.mark.slow
def test_the_lines_of_the_docs_write_the_module_for_other_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    safetensors = pytest.importorskip("safetensors.torch", reason="needs pip install safetensors")
    trained(tmp_path, *DIGITS)
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "commands.md").read_text()
    [lines] = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "torch.export.save(" in code]
    exec(lines, {"lockstep": lockstep, "torch": torch, "RUN": tmp_path, "images": torch.zeros(2, 1, 28, 28)})
    module, images = lockstep.load(tmp_path), torch.randn(5, 1, 28, 28)
    assert torch.allclose(torch.export.load("net.pt2").module()(images), module(images), atol=1e-5)
    saved, expected = safetensors.load_file("net.safetensors"), module.net.state_dict()
    assert saved.keys() == expected.keys()
    assert all(torch.equal(saved[name], expected[name]) for name in saved)
