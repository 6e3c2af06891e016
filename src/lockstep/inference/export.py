"""A trained net in the formats of other programs. What has been written is read again, and compared with the net."""

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.config_error import ConfigError, require, shorten
from lockstep.files import atomic_write
from lockstep.inference.inputs import example_inputs
from lockstep.inference.saved_run import read_run
from lockstep.inference.trained_net import restore
from lockstep.precision import MIXED
from lockstep.run_files import EXPORTED, run_of

TOLERANCE, MIXED_TOLERANCE = 1e-3, 3e-2
"""By how much outputs may differ, as a fraction of the largest: other programs sum in another order."""

Compute = Callable[[Tensor], Tensor]
BATCH = torch.export.Dim("batch")


def export(run: str | Path, kind: str, output: Path | None = None) -> tuple[Path, str]:
    """Write the net of a run, and return the path and a line about how it was checked.

    Args:
        kind: `safetensors`: the weights by their names in the net. `onnx` and `torch_export`: the net with its
            preprocessing, for batches of any size.

    Raises:
        ConfigError: the net cannot be written in this format, or the file computes something else.
    """
    missing = [name for name in ("onnx", "onnxscript") if kind == "onnx" and find_spec(name) is None]
    require(not missing, "--format", kind, f"it needs {' and '.join(missing)}", "pip install 'lockstep[onnx]'")
    plan, checkpoint = read_run(run)
    net = restore(plan, checkpoint)
    path = output or run_of(Path(str(plan.ckpt_path))) / EXPORTED[kind]
    with atomic_write(path) as temporary:
        if kind == "safetensors":
            return path, _save_weights(net if plan.model.lightning else net.net, temporary)
        example = example_inputs(plan, net)
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                compute = PROGRAMS[kind](net, example, temporary)
                difference = _difference(net, compute, torch.cat([example, example[:1]]))
        except Exception as error:  # exporters raise all kinds of errors for nets that they do not support
            reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise ConfigError(f"--format={kind}: this net cannot be exported: {shorten(reason.strip())}") from None
        reason = f"the file computes something else than the net: outputs differ by {difference:.1e} of the largest"
        fits = difference <= (MIXED_TOLERANCE if plan.precision in MIXED else TOLERANCE)
        require(fits, "--format", kind, reason, "another format")
    return path, f"checked: outputs for 3 inputs differ from the net's by {difference:.1e} of the largest"


def _save_weights(net: nn.Module, path: Path) -> str:
    from safetensors.torch import load_file, save_model

    save_model(net, str(path))
    state, saved = net.state_dict(), load_file(path)
    assert all(torch.equal(state[name], tensor) for name, tensor in saved.items())
    return f"checked: its {len(saved)} tensors are those of the net"


def _save_onnx(net: nn.Module, example: Tensor, path: Path) -> Compute:
    import onnx
    from onnx.reference import ReferenceEvaluator

    program: Any = torch.onnx.export(net, (example,), dynamo=True, dynamic_shapes=({0: BATCH},), verbose=False)
    program.save(path)
    evaluator = ReferenceEvaluator(onnx.load(path))
    return lambda inputs: torch.as_tensor(evaluator.run(None, {evaluator.input_names[0]: inputs.numpy()})[0])


def _save_torch_export(net: nn.Module, example: Tensor, path: Path) -> Compute:
    program = torch.export.export(net, (example,), dynamic_shapes=({0: BATCH},))
    with path.open("wb") as file:  # a name would have to end in .pt2
        torch.export.save(program, file)
    with path.open("rb") as file:
        return torch.export.load(file).module()


PROGRAMS: dict[str, Callable[[nn.Module, Tensor, Path], Compute]] = {
    "onnx": _save_onnx,
    "torch_export": _save_torch_export,
}
"""What writes each format, and returns what the file computes."""


def _difference(net: nn.Module, compute: Compute, inputs: Tensor) -> float:
    """Return by how much the outputs of a file differ from the net's, as a fraction of the largest."""
    expected = net(inputs).double()
    return float((compute(inputs).double() - expected).abs().max() / expected.abs().max().clamp(1e-12))
