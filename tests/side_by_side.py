"""Run the cases of cases.py by two trees side by side on this machine, and compare all bits of their results.

    python tests/side_by_side.py [BEFORE [AFTER]] [--cases WORD …] [--write tests/results.json]

BEFORE: the folder of a checkout; by default one of 9b27836b, made for the time of the comparison. AFTER: this one.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.cases import CASES, commands  # noqa: E402

REVISION = "9b27836b"
SHOWN = (0, 1, 2, 4, 8)
"""Steps in the table, beside the last."""
PROGRAM = """
import json, sys, traceback
import lockstep
for command in json.load(sys.stdin):
    try:
        lockstep.run(command)
    except Exception:
        print(*command)
        traceback.print_exc()
"""


def values_of(folder: Path) -> dict[str, float]:
    """Return every number of a finished run by name: of its steps, its metrics, its validations."""
    metrics = json.loads((folder / "metrics.json").read_text())
    values = {f"metrics {name}": float(metrics[name]) for name in metrics if "/" in name}
    lines = [json.loads(line) for line in (folder / "record.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if "step" in line]
    for number, step in enumerate(steps):
        values[f"loss of step {number}"] = step["loss_sum"] / step["samples"]
        values |= {f"{name} of step {number}": step[name] for name in ("grad_norm", "lr")}
    return {"steps": len(steps), **values}


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers of the net at the end."""
    state = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    return {name: tensor.double() for name, tensor in state.items() if name.startswith("net.")}


def table_of(folder: Path) -> dict[str, float]:
    """Return what the table has of a finished run: some steps, all metrics, and the norm of each weight."""
    values = values_of(folder)
    last = int(values["steps"]) - 1
    steps = [f" of step {number}" for number in (*(step for step in SHOWN if step < last), last)]
    few = {name: value for name, value in values.items() if " of step" not in name or name.endswith(tuple(steps))}
    return few | {f"norm of {name}": tensor.norm().item() for name, tensor in weights_of(folder).items()}


def difference(before: Path, after: Path) -> tuple[float, str]:
    """Return the largest difference of two runs, and of what; infinite if something is missing."""
    numbers = [values_of(folder) for folder in (before, after)]
    weights = [weights_of(folder) for folder in (before, after)]
    apart = [(math.inf, name) for left, right in (numbers, weights) for name in left if name not in right]
    apart += [(abs(value - numbers[1][name]), name) for name, value in numbers[0].items() if name in numbers[1]]
    apart += [
        ((tensor - weights[1][name]).abs().max().item(), name)
        for name, tensor in weights[0].items()
        if name in weights[1]
    ]
    return max(apart)


@contextmanager
def checkout() -> Iterator[Path]:
    """Check out the tree of before in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        tree, git = Path(folder) / REVISION, ("git", "-C", str(ROOT), "worktree")
        subprocess.run([*git, "add", "--detach", str(tree), REVISION], check=True, capture_output=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def start(tree: Path, folder: Path, names: list[str]) -> "subprocess.Popen[str]":
    """Start a process that runs the cases by a tree, each in a folder of its name."""
    folder.mkdir()
    jobs = [command for name in names for command in commands(name, tree, folder / name.replace(" ", "_"))]
    (folder / "jobs.json").write_text(json.dumps(jobs))
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    with (folder / "jobs.json").open() as stdin, (folder / "log").open("w") as log:
        arguments = [sys.executable, "-c", PROGRAM]
        return subprocess.Popen(
            arguments, cwd=folder, env=environment, stdin=stdin, stdout=log, stderr=subprocess.STDOUT, text=True
        )


def compared(folders: list[Path], names: list[str]) -> bool:
    """Print a line for each case; return whether all are identical."""
    results = []
    for name in names:
        runs = [folder / name.replace(" ", "_") for folder in folders]
        missing = [run for run in runs if not (run / "metrics.json").is_file()]
        largest, quantity = (math.inf, f"{missing[0]} did not end") if missing else difference(*runs)
        results.append(largest == 0)
        print(f"{name:32} {'identical' if largest == 0 else f'{largest:.1e}  {quantity}'}", flush=True)
    return all(results)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="?", type=Path, help=f"default: a checkout of {REVISION}")
    parser.add_argument("after", nargs="?", type=Path, default=ROOT)
    parser.add_argument("--cases", nargs="+", default=[""], help="words in the names of the cases to run")
    parser.add_argument("--write", type=Path, help="write the results of BEFORE as the table of test_results.py")
    options = parser.parse_args()
    names = [name for name in CASES if any(word in name for word in options.cases)]
    with checkout() if options.before is None else nullcontext(options.before.resolve()) as before:
        folder = Path(tempfile.mkdtemp(prefix="side_by_side-"))
        folders = [folder / "before", folder / "after"]
        trees = [before, options.after.resolve()]
        for process in [start(tree, each, names) for tree, each in zip(trees, folders, strict=True)]:
            process.wait()
    identical = compared(folders, names)
    print(f"the runs are in {folder}")
    if options.write:
        table: Any = {name: table_of(folders[0] / name.replace(" ", "_")) for name in names}
        options.write.write_text(json.dumps(table, indent=1) + "\n")
    return 0 if identical else 1


if __name__ == "__main__":
    sys.exit(main())
