"""What people watch of a run beside its numbers; its loggers write it: see docs/monitoring.md.

Both engines call the same methods at the same moments; above rank 0 nothing is written.
"""

import resource
from collections.abc import Mapping
from dataclasses import asdict

import torch

from lockstep import loggers
from lockstep.loggers import Loggers
from lockstep.loggers.run_label import MONITORING
from lockstep.loggers.tensorboard import HyperParameter, plain_hparam
from lockstep.monitor.texts import texts_of
from lockstep.plan import Plan
from lockstep.private_api.tensorboard import add_text
from lockstep.schemas import Lightning
from lockstep.schemas.keys import flatten, is_below


def open_loggers(plan: Plan, rank: int, steps: int) -> Loggers:
    """Open the loggers of a run whose training begins after `steps` steps; log its texts and hyper-parameters."""
    opened = loggers.create(plan, rank, steps, hparams_of(plan))
    if (board := opened.board) is not None:
        for name, text in texts_of(plan).items():
            add_text(board.writer, name, text)
        board.writer.add_custom_scalars(layout_of(plan))
    return opened


def hparams_of(plan: Plan) -> dict[str, HyperParameter]:
    """Return the options by the keys of the command line.

    What follows from them (world size, backend) is left out: TensorBoard would list it as one more difference.
    """
    # a LightningModule has an optimizer, a scheduler and a loss of its own
    module_keys = ("optimizer", "scheduler", "task") if plan.model.lightning else ()
    left_out = *MONITORING, "run_dir", "command", *module_keys
    return {key: plain_hparam(value) for key, value in flatten(asdict(plan)).items() if not is_below(key, left_out)}


def layout_of(plan: Plan) -> dict[str, dict[str, tuple[str, list[str]]]]:
    """Return the layout of the page *Custom scalars*: by category and chart, regular expressions of curves."""
    if plan.model.lightning:  # whatever it calls them
        names = {"loss": "^(train|val|valid|validation)[/_].*loss.*$", "accuracy": "^(train|val).*acc.*$"}
    else:
        metrics = [name.removeprefix("val/") for name in plan.objective.names("val")]
        names = {name: rf"^(train|val)/{name}$" for name in metrics}
    return {"training and validation": {name: ("Multiline", [pattern]) for name, pattern in names.items()}}


def work_of(plan: Plan, device: torch.device, seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of a batch by phase, and memory, by the names of curves."""
    by_hand = plan.gradient_sync == plan.engine.gradient_sync != Lightning.gradient_sync  # others overlap with backward
    phases = {phase: value for phase, value in seconds.items() if phase != "communication" or by_hand}
    times = {f"work/step_seconds/{phase}": value for phase, value in phases.items()}
    return times | {"work/memory_GiB": peak_memory(device)}


def peak_memory(device: torch.device) -> float:
    """Return the peak memory of this process, or of the tensors on a GPU, in GiB."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
