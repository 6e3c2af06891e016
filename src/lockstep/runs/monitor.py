"""What people watch of a run beside its numbers, and its net; loggers of rank 0 write it: see docs/monitoring.md."""

import os
import platform
import re
import resource
import shlex
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from lockstep.base.private_api.tensorboard import add_points, add_text
from lockstep.base.progress import print_beside_bar
from lockstep.base.random_state import preserve_generators
from lockstep.plan.plan import Plan
from lockstep.plan.run_label import MONITORING, HyperParameter, folder_of, plain_hparam
from lockstep.plan.schemas.groups import is_below
from lockstep.plan.schemas.target import tensorboard_of
from lockstep.runs.run_files import CONFIG
from lockstep.strategies.parallel.tensor_layout import full_tensor

if TYPE_CHECKING:
    from lockstep.runs.compare import Comparison, RecordedRun
    from lockstep.runs.loggers import Loggers

CODE = "    "  # the indentation of a code block in Markdown
CHARTS = {"loss": "^(train|val|valid|validation)[/_].*loss.*$", "accuracy": "^(train|val).*acc.*$"}
"""The charts of TensorBoard's page *Custom scalars*: regular expressions of their curves."""
PACKAGES = ("lockstep", "torch", "lightning", "numpy", "hydra-core", "tensorboard")


def open_loggers(plan: Plan, rank: int, steps: int) -> "Loggers":
    """Open the loggers of a run whose training begins after `steps` steps; log its texts and hyper-parameters."""
    from lockstep.runs import loggers  # with Lightning, which the command does without

    opened = loggers.create(plan, rank, steps, hparams_of(plan))
    if (board := opened.board) is not None:
        for name, text in texts_of(plan).items():
            add_text(board.writer, name, text)
        charts = {name: ("Multiline", [pattern]) for name, pattern in CHARTS.items()}
        board.writer.add_custom_scalars({"training and validation": charts})
    return opened


def hparams_of(plan: Plan) -> dict[str, HyperParameter]:
    """Return the options by the keys of the command line.

    What follows from them (world size, backend) is left out: TensorBoard would list it as one more difference.
    """
    return {key: plain_hparam(value) for key, value in plan.options.items() if not is_below(key, MONITORING)}


def work_of(device: torch.device, seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of a batch by phase, and the peak memory of this process or of tensors on a GPU, as curves."""
    times = {f"work/step_seconds/{name}": value for name, value in seconds.items()}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
    return times | {"work/memory_GiB": peak / 2**30}


def texts_of(plan: Plan) -> dict[str, str]:
    """Return pages of Markdown by name: the command, versions and devices as a table, the configuration."""
    words = [word for word in plan.command.words if not word.startswith(("resume=", "ckpt_path="))]
    rows, world, config = versions_and_machine(gpu=plan.accelerator == "gpu"), plan.world, Path(plan.run_dir) / CONFIG
    ranks = f"{plan.world_size}, joined by {world.backend}" if world.distributed else str(plan.world_size)
    rows |= {"ranks": ranks, "threads of a rank": str(plan.threads)}
    table = "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items() if value)])
    texts = {"run/command": indent(shlex.join(["python", "train.py", *words]), CODE), "run/environment": table}
    return texts | ({"run/configuration": indent(config.read_text(), CODE)} if config.is_file() else {})


def versions_and_machine(gpu: bool) -> dict[str, str]:
    """Return where and with what this process computes."""
    rows = {"Python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):  # lockstep from a checkout that is not installed
            rows[name] = version(name)
    info = Path("/proc/cpuinfo")
    processors = re.findall("model name\\s*: (.*)", info.read_text()) if info.is_file() else []
    rows |= {
        "system": platform.platform(),
        "processor": [*processors, platform.machine()][0],
        "cores": str(os.cpu_count()),
    }
    if gpu:
        names = map(torch.cuda.get_device_name, range(torch.cuda.device_count()))
        rows |= {"GPU": ", ".join(names), "CUDA": str(torch.version.cuda)}
    return rows


def show_layers(plan: Plan, rank: int, net: nn.Module, example: Any, device: torch.device) -> None:
    """Print Lightning's table of all layers on rank 0; weights, modes, buffers and generators are unchanged afterwards.

    Every rank calls it with its own batch, since a net may wait for others. `example`: the argument of its forward, a
    tuple of several or a mapping of them by name; None if it is unknown. Without it, or if the net cannot be called
    with it, there are no shapes and FLOPs.
    """
    from lockstep.base.private_api.lightning import layers_table  # with Lightning

    def forward() -> Any:
        if isinstance(example, Mapping):
            return net(**example)
        return net(*example) if isinstance(example, tuple) else net(example)

    content = "parameters" if example is None else "forward of an example"
    training = {module: module.training for module in net.modules()}
    buffers = [(buffer, buffer.clone()) for buffer in net.buffers()]
    net.eval()
    with torch.no_grad(), preserve_generators([device]):
        try:
            table = layers_table(net, None if example is None else forward)
        except Exception as error:  # of the user's net
            content = f"parameters; its forward does not take the example ({type(error).__name__})"
            table = layers_table(net, None)
        for buffer, before in buffers:
            buffer.copy_(before)
    for module, mode in training.items():
        module.training = mode
    if rank == 0:
        print_beside_bar(f"\n{plan.model.name}: {content}\n{table}")


def log_histograms(plan: Plan, loggers: "Loggers", net: nn.Module, epoch: int, step: int) -> None:
    """Log the weights after the last step of every N-th epoch (from 1), and its gradients. Every rank calls it."""
    options, board = tensorboard_of(plan), loggers.board
    if options is None or options.histograms == 0 or epoch % options.histograms != 0:
        return
    for name, parameter in net.named_parameters() if board is not None or plan.strategy.sharded else ():
        tensors = {f"weights/{name}": parameter.detach(), f"weights/{name}/gradient": parameter.grad}
        for tag, tensor in tensors.items():
            values = None if tensor is None else full_tensor(tensor)  # on every rank: it may be sharded
            if board is not None and values is not None:
                board.writer.add_histogram(tag, values, step)


def write_difference(plan: Plan, lightning: Path, raw: Path, comparison: "Comparison") -> None:
    """Write the difference as a TensorBoard run of its own in the folder of both engines."""
    from torch.utils.tensorboard import SummaryWriter  # not by each rank

    from lockstep.runs.compare import RecordedRun

    folder = folder_of(plan)
    with SummaryWriter(str(folder.with_name(folder.name.replace("both", "difference", 1)))) as writer:
        add_text(writer, "difference/verdict", indent(comparison.text(), CODE))
        for step, values in differences(RecordedRun(lightning), RecordedRun(raw)).items():
            add_points(writer, {f"difference/{name}": value for name, value in values.items()}, step)


def differences(left: "RecordedRun", right: "RecordedRun") -> Mapping[int, Mapping[str, float]]:
    """Return, for each step of both, the difference of the mean loss and the gradient norm, and the larger of them.

    At step 0, before training, both have the same weights.
    """
    from lockstep.runs.compare.comparison import difference  # not by each rank

    curves = {0: {"largest": 0.0, "loss": 0.0, "gradient norm": 0.0}}
    for at in sorted(left.steps.keys() & right.steps.keys()):
        a, b = left.steps[at], right.steps[at]
        norm = difference(a.get("grad_norm"), b.get("grad_norm"))
        loss = difference(*(line.get("loss_sum") and line["loss_sum"] / line["samples"] for line in (a, b)))
        curves[at[1]] = {"largest": max(loss, norm), "loss": loss, "gradient norm": norm}
    return curves
