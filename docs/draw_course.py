"""Draw the pictures of the course: `python docs/draw_course.py FOLDER` writes points.svg and speed_up.svg there."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch

from lockstep import run
from lockstep.raw.data import hash_ids

mpl.use("svg")
mpl.rcParams.update({"svg.hashsalt": "lockstep", "svg.fonttype": "none", "font.size": 9})

from matplotlib import pyplot as plt  # noqa: E402  # after the backend is chosen

COLORS = ("tab:blue", "tab:orange")
BATCHES = (8, 32, 128, 512)
NETS = {
    "split_cnn, 21,840 weights": ["model=split_cnn"],
    "mlp, 1.9 million weights": ["model=mlp", "model.net.hidden=[1024,1024]"],
}
TWO = ("strategy=ddp", "devices=2")
ROUNDS = 2


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


def seconds_of_step(scratch: Path, batch: int, *overrides: str) -> float:
    """Return the seconds of a training step, of the first twenty."""
    steps = (f"batch_size={batch}", "trainer.max_steps=20", "trainer.limit_val_batches=0", "test=false")
    result = run([*overrides, *steps, "threads=1", "logger=none", f"hydra.run.dir='{scratch}/{batch}'"])
    return float(result["train_seconds"]) / int(result["steps"])


def draw_speed_up(scratch: Path, target: Path) -> None:
    """Draw the speed-up of two ranks over the size of the global batch, each time the best of some rounds."""
    _, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
    for (label, net), style in zip(NETS.items(), ("o-", "s:"), strict=True):
        speed_ups = []
        for batch in BATCHES:
            rounds = range(ROUNDS)
            times = [
                (seconds_of_step(scratch, batch, *net), seconds_of_step(scratch, batch, *net, *TWO)) for _ in rounds
            ]
            alone, shared = map(min, zip(*times, strict=True))
            speed_ups.append(alone / shared)
            print(f"{label}, batch {batch}: {1000 * alone:.2f} ms, {1000 * shared:.2f} ms on two ranks")
        axes.semilogx(BATCHES, speed_ups, style, color="black", fillstyle="none", label=label)
    for value, text in ((1, "no faster"), (2, "twice as fast")):
        axes.axhline(value, color="tab:gray", linewidth=0.8, linestyle=":")
        axes.annotate(text, (1, value), (-2, -9), ("axes fraction", "data"), "offset points", ha="right", fontsize=7)
    axes.set(xlabel="samples of a global batch", ylabel="speed-up of two ranks", ylim=(0, 2.2))
    axes.set_xticks(BATCHES, [str(batch) for batch in BATCHES])
    axes.minorticks_off()
    axes.legend(frameon=False, loc="upper left")
    plt.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    pictures = {"points": draw_points, "speed_up": draw_speed_up}
    for picture in sys.argv[2:] or pictures:
        with tempfile.TemporaryDirectory() as folder:
            pictures[picture](Path(folder), Path(sys.argv[1]) / f"{picture}.svg")
