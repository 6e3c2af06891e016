"""Draw the pictures of the course: `python docs/draw_course.py FOLDER points` (or speed_up) writes points.svg there.

`points` runs what it draws; `speed_up` draws the sweeps of lesson 3 in `runs/`.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch

from lockstep import run
from lockstep.raw.record import hash_ids

mpl.use("svg")
mpl.rcParams.update({"svg.hashsalt": "lockstep", "svg.fonttype": "none", "font.size": 9})

from matplotlib import pyplot as plt  # noqa: E402  # after the backend is chosen

COLORS = ("tab:blue", "tab:orange")
SWEEPS = {"line": "a line, 2 weights", "conv": "split_cnn, 21,840 weights"}


def steps(folder: Path) -> list[dict[str, Any]]:
    """Return what the record of a run has of each step."""
    lines = map(json.loads, (folder / "record.jsonl").read_text().splitlines())
    return [line["step"] for line in lines if "step" in line]


def draw_points(scratch: Path, target: Path) -> None:
    """Draw which rank has which point in each step of lesson 1, and the loss of one process and of two."""
    common = ["experiment=toy_mlp", "logger=none", "batch_size=4"]
    run([*common, "strategy=single", "devices=1", f"hydra.run.dir='{scratch}/one'"])
    run([*common, f"hydra.run.dir='{scratch}/two'"])
    _, (grid, curve) = plt.subplots(1, 2, figsize=(8, 2.6), layout="constrained", width_ratios=[3, 2])
    for line in steps(scratch / "two"):
        epoch, batch = line["epoch"] - 1, (line["step"] - 1) % 2
        order = torch.randperm(5, generator=torch.Generator().manual_seed(123 + epoch))
        ids = order[4 * batch : 4 * batch + 4]
        hashes = sum(hash_ids(ids[rank::2], 4 * batch + rank, 2) for rank in (0, 1))
        assert f"{hashes % 2**64:016x}" == line["ids"], "the run has other points"
        for rank, color in enumerate(COLORS):
            label = f"rank {rank}" if line["step"] == 1 else None
            grid.scatter([line["step"]] * len(ids[rank::2]), ids[rank::2], 160, color, marker="s", label=label)
    grid.set(xlabel="optimizer step", ylabel="point", yticks=range(5), ylim=(-0.7, 4.7), xlim=(0.5, 6.5))
    grid.set_title("who computes which point", fontsize="medium")
    grid.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, markerscale=0.6)
    for name, style, label in (("one", "-", "one process"), ("two", "o", "two ranks")):
        losses = [line["loss_sum"] / line["samples"] for line in steps(scratch / name)]
        curve.plot(range(1, len(losses) + 1), losses, style, color="black", fillstyle="none", label=label)
    curve.set(xlabel="optimizer step", ylabel="loss of the batch", ylim=(0, None))
    curve.set_title("what they learn", fontsize="medium")
    curve.legend(frameon=False)
    plt.savefig(target, metadata={"Date": None})


def draw_speed_up(_: Path, target: Path) -> None:
    """Draw the samples a second of one rank and of two, in the two sweeps of lesson 3."""
    _, panels = plt.subplots(1, 2, figsize=(7, 1.8), layout="constrained")
    for axes, (sweep, title) in zip(panels, SWEEPS.items(), strict=True):
        jobs = [json.loads(Path("runs", sweep, str(job), "metrics.json").read_text()) for job in (0, 1)]
        speeds = [job["samples_per_second"] for job in jobs]
        bars = axes.barh(["one rank", "two ranks"], speeds, color=COLORS)
        axes.bar_label(bars, ["", f"speed-up {speeds[1] / speeds[0]:.2f}"], padding=4)
        axes.set(xlabel="samples a second", xlim=(0, 1.7 * max(speeds)))
        axes.set_title(title, fontsize="medium")
        axes.invert_yaxis()
    plt.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    pictures = {"points": draw_points, "speed_up": draw_speed_up}
    for picture in sys.argv[2:]:
        with tempfile.TemporaryDirectory() as folder:
            pictures[picture](Path(folder), Path(sys.argv[1]) / f"{picture}.svg")
