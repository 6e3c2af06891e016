"""What `engine=both` adds to the curves of the two engines: their difference at each step, and the verdict."""

from pathlib import Path

from lockstep.compare import Comparison, RunFolder
from lockstep.compare.curve import differences
from lockstep.loggers.tensorboard import TensorBoard, folder_of
from lockstep.monitor.texts import code
from lockstep.plan import Plan

WORD = "difference"


def write_difference(plan: Plan, lightning: Path, raw: Path, comparison: Comparison) -> None:
    """A run of its own in the folder of both. For plans that write for TensorBoard."""
    own = folder_of(plan)
    board = TensorBoard(own.with_name(own.name.replace("both", WORD, 1)), {})
    board.log_text(f"{WORD}/verdict", code(comparison.text()))
    board.log_layout({"Lightning against raw": {"largest difference of a step": [f"^{WORD}/largest$"]}})
    for step, values in differences(RunFolder(lightning), RunFolder(raw)).items():
        board.log_metrics({f"{WORD}/{name}": value for name, value in values.items()}, step)
    board.close({}, {})
