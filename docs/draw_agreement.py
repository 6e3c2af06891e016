"""Draw agreement.svg: `python docs/draw_agreement.py FILE`, nine short runs of the `mlp` on the digits."""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import matplotlib as mpl

from lockstep import run

mpl.use("svg")
mpl.rcParams.update({"svg.hashsalt": "lockstep", "svg.fonttype": "none"})

from matplotlib import pyplot as plt  # noqa: E402  # after the backend is chosen

COLORS = {"bf16-mixed": "tab:red", "32-true": "tab:orange", "64-true": "tab:blue"}
STYLES = {2: "-", 4: ":"}
FLOOR = 2e-17
"""Where no difference at all is drawn: a logarithm has no place for 0."""


def losses(folder: Path, *overrides: str) -> list[float]:
    """Run a training; return the mean loss of each optimizer step."""
    run(["logger=none", "max_epochs=5", "threads=1", f"hydra.run.dir='{folder}'", *overrides])
    lines = map(json.loads, (folder / "record.jsonl").read_text().splitlines())
    return [line["step"]["loss_sum"] / line["step"]["samples"] for line in lines if "step" in line]


def measure(scratch: Path) -> dict[tuple[str, int], list[float]]:
    """Return the difference from one device at each step, relative if above 1, by precision and number of ranks."""
    differences = {}
    for precision in COLORS:
        alone = losses(scratch / precision, f"precision={precision}")
        for ranks in STYLES:
            folder = scratch / f"{precision}-{ranks}"
            shared = losses(folder, f"precision={precision}", "strategy=ddp", f"devices={ranks}")
            differences[precision, ranks] = [abs(a - b) / max(1, a, b) for a, b in zip(alone, shared, strict=True)]
    return differences


def draw(differences: Mapping[tuple[str, int], Sequence[float]], target: Path) -> None:
    """Draw the largest difference so far, over the steps."""
    _, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    for (precision, ranks), each in differences.items():
        largest = [max(FLOOR, difference) for difference in accumulate(each, max)]
        label = f"{precision}, {ranks} ranks"
        axes.semilogy(range(1, len(largest) + 1), largest, STYLES[ranks], color=COLORS[precision], label=label)
    axes.set(xlabel="optimizer step", ylabel="largest difference\nof the loss so far", ylim=(1e-17, 1), xlim=(1, 100))
    axes.set_title(
        "mlp (235,146 parameters) on 1,257 handwritten digits, Adam: ddp against one device", fontsize="medium"
    )
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    plt.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        measured = measure(Path(scratch))
    for (precision, ranks), each in measured.items():
        print(f"precision={precision} devices={ranks}: at most {max(each):.1e}")
    draw(measured, Path(sys.argv[1]))
