"""A trained module in the formats of other programs. What has been written is read again, and compared with it."""

import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.config_error import ConfigError, errors_as, require, shorten
from lockstep.files import atomic_write
from lockstep.inference.inputs import example_inputs
from lockstep.inference.trained_module import read_run, restore
from lockstep.parallel.net_proxy import net_of
from lockstep.run_files import EXPORTED, run_of

TOLERANCE = 1e-3  # by how much outputs may differ, as a fraction of the largest: other programs sum in another order

Compute = Callable[[Tensor], Tensor]
BATCH = torch.export.Dim("batch")


def export(run: str | Path, kind: str, output: Path | None = None) -> tuple[Path, str]:
    """Write the module of a run, and return the path and a line about how it was checked.

    Args:
        kind: `safetensors`: the weights by their names in the module's `net`, or in the module if it has none. `onnx`
            and `torch_export`: its `forward`, for batches of any size as they come out of the data module.
    """
    missing = [name for name in ("onnx", "onnxscript") if kind == "onnx" and find_spec(name) is None]
    require(not missing, "--format", kind, f"it needs {' and '.join(missing)}", "pip install onnx onnxscript")
    plan, checkpoint = read_run(run)
    module = restore(plan, checkpoint)
    path = output or run_of(Path(str(plan.ckpt_path))) / EXPORTED[kind]
    with atomic_write(path) as temporary, errors_as(partial(_not_exported, kind)), _silenced():
        if kind == "safetensors":
            net = net_of(module)
            return path, _save_weights(module if net is None else net, temporary)
        return path, _save_program(kind, module, example_inputs(plan, module), temporary)


def _not_exported(kind: str, error: Exception) -> ConfigError | None:
    """Return the error of an exporter, which may raise anything for a net that it does not support."""
    text = str(error.__cause__ or error)
    reason = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return ConfigError(f"--format={kind}: this net cannot be exported: {shorten(reason)}")


@contextmanager
def _silenced() -> Iterator[None]:
    """Keep exporters from printing warnings, and programs that they do not support."""
    disabled = logging.root.manager.disable
    logging.disable()
    try:
        with warnings.catch_warnings(action="ignore"), redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(disabled)


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
    program.save(path, external_data=False)  # its name would be that of the temporary file
    evaluator: Any = ReferenceEvaluator(onnx.load(path))
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


@torch.no_grad()
def _save_program(kind: str, net: nn.Module, example: Tensor, path: Path) -> str:
    """Write a net as a program, and compare its outputs for a batch of another size than that of the example."""
    compute, inputs = PROGRAMS[kind](net, example, path), torch.cat([example, example[:1]])
    expected = net(inputs).double()
    difference = float((compute(inputs).double() - expected).abs().max() / expected.abs().max().clamp(1e-12))
    reason = f"the file computes something else than the net: outputs differ by {difference:.1e} of the largest"
    require(difference <= TOLERANCE, "--format", kind, reason, "another format")
    return f"checked: outputs for 3 inputs differ from the net's by {difference:.1e} of the largest"
