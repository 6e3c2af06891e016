"""What `engine=both` adds to the curves of the two engines: their difference at each step, and the verdict."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import indent

from torch.utils.tensorboard import SummaryWriter

from lockstep.compare import Comparison, RecordedRun
from lockstep.compare.quantity import difference
from lockstep.monitor import CODE
from lockstep.plan import Plan
from lockstep.private_api.tensorboard import add_points, add_text
from lockstep.run_label import folder_of


def write_difference(plan: Plan, lightning: Path, raw: Path, comparison: Comparison) -> None:
    """Write the difference as a TensorBoard run of its own in the folder of both engines."""
    folder = folder_of(plan)
    with SummaryWriter(str(folder.with_name(folder.name.replace("both", "difference", 1)))) as writer:
        add_text(writer, "difference/verdict", indent(comparison.text(), CODE))
        for step, values in differences(RecordedRun(lightning), RecordedRun(raw)).items():
            add_points(writer, {f"difference/{name}": value for name, value in values.items()}, step)


def differences(left: RecordedRun, right: RecordedRun) -> Mapping[int, Mapping[str, float]]:
    """Return, for each step of both, the difference of the mean loss and the gradient norm, and the larger of them.

    At step 0, before training, both have the same weights.
    """
    curves = {0: {"largest": 0.0, "loss": 0.0, "gradient norm": 0.0}}
    for at in sorted(left.steps.keys() & right.steps.keys()):
        a, b = left.steps[at], right.steps[at]
        norm = difference(a.get("grad_norm"), b.get("grad_norm"))
        loss = difference(*(line.get("loss_sum") and line["loss_sum"] / line["samples"] for line in (a, b)))
        curves[at[1]] = {"largest": max(loss, norm), "loss": loss, "gradient norm": norm}
    return curves
