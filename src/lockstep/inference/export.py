"""A trained net in the formats of other programs. What has been written is read again, and compared with the net."""

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lockstep import data, schemas
from lockstep.config_error import ConfigError, require
from lockstep.data.tensors import Split
from lockstep.files import atomic_write
from lockstep.inference.preprocessing import Preprocessing
from lockstep.inference.saved_plan import read_plan
from lockstep.inference.trained_net import load_planned
from lockstep.loaders.loader_facts import SINGLE, facts_of
from lockstep.loaders.loader_source import create_source
from lockstep.plan import Plan
from lockstep.precision import MIXED
from lockstep.run_files import run_of
from lockstep.schemas.target import BuiltIn

TOLERANCE, MIXED_TOLERANCE = 1e-3, 3e-2
"""By how much outputs may differ, as a fraction of the largest: other programs sum in another order."""


def export(run: str | Path, kind: str, output: Path | None = None) -> tuple[Path, str]:
    """Write the net of a run, and return the path and a line about how it was checked.

    Args:
        kind: `safetensors`: the weights by their names in the net. `onnx` and `torch_export`: the net with its
            preprocessing, for batches of any size.

    Raises:
        ConfigError: the net cannot be written in this format, or the file computes something else.
    """
    write, suffix = FORMATS[kind]
    missing = [name for name in ("onnx", "onnxscript") if kind == "onnx" and find_spec(name) is None]
    require(not missing, "--format", kind, f"it needs {' and '.join(missing)}", "pip install -e '.[onnx]'")
    plan = read_plan(run)
    net = load_planned(plan)
    path = output or run_of(Path(str(plan.ckpt_path))) / f"net{suffix}"
    with atomic_write(path) as temporary:
        try:
            checked = write(net, plan, temporary)
        except (ConfigError, OSError):
            raise
        except Exception as error:  # exporters raise all kinds of errors for nets that they do not support
            lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            raise ConfigError(f"--format={kind}: this net cannot be exported: {lines[0]}.") from None
    return path, checked


def _save_safetensors(net: Any, plan: Plan, path: Path) -> str:
    from safetensors.torch import load_file, save_model

    inner = net if plan.model.lightning else net.net
    save_model(inner, str(path), {"run": plan.run_dir})
    state, saved = inner.state_dict(), load_file(path)
    require(all(torch.equal(state[name], saved[name]) for name in saved), "RUN", plan.run_dir, CHANGED, OTHER)
    return f"checked: its {len(saved)} tensors are those of the net"


def _save_onnx(net: nn.Module, plan: Plan, path: Path) -> str:
    import onnx
    from onnx.reference import ReferenceEvaluator

    example = example_inputs(plan, net)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(net, (example,), dynamo=True, dynamic_shapes=({0: BATCH},), verbose=False)
        assert program is not None
        program.save(path)
    evaluator = ReferenceEvaluator(model := onnx.load(path))
    name = model.graph.input[0].name

    def compute(inputs: Tensor) -> Tensor:
        outputs: Any = evaluator.run(None, {name: inputs.numpy()})
        return torch.from_numpy(np.asarray(outputs[0]).astype(np.float32))

    return _check(net, plan, example, compute)


def _save_torch_export(net: nn.Module, plan: Plan, path: Path) -> str:
    example = example_inputs(plan, net)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(net, (example,), dynamic_shapes=({0: BATCH},))
        with path.open("wb") as file:
            torch.export.save(program, file)
        with path.open("rb") as file:
            loaded = torch.export.load(file).module()
    return _check(net, plan, example, loaded)


BATCH = torch.export.Dim("batch")
CHANGED, OTHER = "the file is not the same as the net", "another format"
FORMATS: dict[str, tuple[Callable[[Any, Plan, Path], str], str]] = {
    "safetensors": (_save_safetensors, ".safetensors"),
    "onnx": (_save_onnx, ".onnx"),
    "torch_export": (_save_torch_export, ".pt2"),
}


@torch.no_grad()
def _check(net: nn.Module, plan: Plan, example: Tensor, compute: Callable[[Tensor], Tensor]) -> str:
    """Compare the outputs of a file with the net's, for a batch of another size than it was exported with."""
    inputs = torch.cat([example, example[:1]])
    expected = net(inputs).double()
    difference = float((compute(inputs).double() - expected).abs().max() / expected.abs().max().clamp(1e-12))
    tolerance = MIXED_TOLERANCE if plan.precision in MIXED else TOLERANCE
    require(difference <= tolerance, "RUN", plan.run_dir, f"{CHANGED} (by {difference:.1e})", OTHER)
    return f"checked: its outputs for {len(inputs)} inputs differ from the net's by {difference:.1e} of the largest"


def example_inputs(plan: Plan, net: Any) -> Tensor:
    """Return two inputs (2, *shape) as the net, with its preprocessing if it is a plain one, takes them."""
    if not plan.model.lightning:
        inputs = _inputs_of_data(plan, None)
    elif isinstance(net.example_input_array, Tensor):
        inputs = net.example_input_array
    else:
        inputs = Preprocessing(plan)(_inputs_of_data(plan, net))
    return inputs.repeat(2, *[1] * (inputs.dim() - 1))[:2]


def _inputs_of_data(plan: Plan, module: Any) -> Tensor:
    """Return some inputs as the data set has them."""
    if isinstance(plan.data, BuiltIn) and plan.data.shape:
        generator = torch.Generator().manual_seed(0)
        return torch.randint(0, 256, (2, *plan.data.shape), generator=generator, dtype=torch.uint8)
    if isinstance(plan.data, schemas.Loaders):
        source = create_source(plan.data, module, plan.seed, plan.batch_size)
        facts_of(source, {})
        batch = next(iter(source.loaders("train", SINGLE)[0]))
        inputs = batch[0] if isinstance(batch, list | tuple) else batch
        reason, hint = f"its data yields a {type(inputs).__name__}", "a module with example_input_array"
        require(isinstance(inputs, Tensor), "RUN", plan.run_dir, reason, hint)
        return inputs  # type: ignore[no-any-return]
    splits = data.load(plan.data, plan.seed, plan.task.samples)
    return splits.train.inputs[:2] if isinstance(splits.train, Split) else splits.first(torch.float32)
