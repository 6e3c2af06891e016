"""Files for other programs compute what the module computes, and a file that does not is not left behind."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import lockstep
from lockstep import ConfigError
from lockstep.inference import export as exporting
from lockstep.inference.export import export
from lockstep.run_files import EXPORTED
from tests.conftest import IN_PROCESS, Command

pytestmark = IN_PROCESS
QUIET = ("logger=none", "threads=1", "max_epochs=1", "strategy.in_process=true", "engine=raw", "model.net.hidden=[4]")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    lockstep.run([*QUIET, "data.test_size=1700", "data.val_size=40", f"hydra.run.dir={folder}"])
    return folder


def test_safetensors_holds_the_weights(run: Path) -> None:
    from safetensors.torch import load_file

    path, checked = export(run, "safetensors")
    state, saved = lockstep.load(run).net.state_dict(), load_file(path)
    assert state.keys() == saved.keys()
    assert all(torch.equal(state[name], saved[name]) for name in state)
    assert checked == "checked: its 4 tensors are those of the net"


@pytest.mark.parametrize("kind", ["torch_export", pytest.param("onnx", marks=pytest.mark.slow)])
def test_a_program_takes_what_comes_out_of_the_data_module(run: Path, tmp_path: Path, kind: str) -> None:
    if kind == "onnx":
        for package in ("onnx", "onnxscript"):
            pytest.importorskip(package, reason=f"needs {package}")
    path = tmp_path / f"net{Path(EXPORTED[kind]).suffix}"
    assert export(run, kind, path)[1].startswith("checked: outputs for 3 inputs differ from the net's by ")
    images = torch.randn(5, 1, 28, 28)
    if kind == "onnx":
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(str(path))
        [outputs] = evaluator.run(None, {evaluator.input_names[0]: images.numpy()})
        outputs = torch.from_numpy(outputs)
    else:
        outputs = torch.export.load(path).module()(images)
    assert torch.allclose(outputs, lockstep.load(run)(images), atol=1e-5)


def test_a_file_that_computes_something_else_is_refused(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Summed(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs.flatten(1).sum(1, keepdim=True).expand(-1, 10)

    original = torch.export.export
    wrong = lambda _net, *rest, **options: original(Summed(), *rest, **options)  # noqa: E731
    monkeypatch.setattr(torch.export, "export", wrong)
    with pytest.raises(ConfigError, match="the file computes something else than the net"):
        export(run, "torch_export", tmp_path / "net.pt2")
    assert not [*tmp_path.iterdir()]


def test_the_command_prints_the_file_and_refuses_in_one_line(run: Path, command: Command) -> None:
    module = ("-m", "lockstep.export", str(run))
    ended = command(sys.executable, *module, "--output", "net.safetensors")
    assert (ended.status, ended.out.splitlines()[0]) == (0, "net.safetensors")
    ended = command(sys.executable, *module, "--output", "net.pt")
    assert (ended.status, ended.err) == (
        2,
        "--output=net.pt: a file of the format safetensors ends in .safetensors; write --output net.safetensors.\n",
    )


def test_a_package_that_is_missing_is_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"it needs onnx and onnxscript; write pip install onnx onnxscript"):
        export(run, "onnx")


def test_a_module_is_exported_by_a_batch_of_its_data(tmp_path: Path) -> None:
    lockstep.run([*QUIET[:-1], "model=example_module", "data=example_module", f"hydra.run.dir={tmp_path}"])
    export(tmp_path, "torch_export")
    points = torch.randn(3, 2)
    assert torch.equal(torch.export.load(tmp_path / "net.pt2").module()(points), lockstep.load(tmp_path)(points))
