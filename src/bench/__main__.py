"""`python -m bench`: measure each workload, print the table and save it."""

import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bench import workloads
from lockstep.base.config_error import option_error
from lockstep.base.files import save_table
from lockstep.base.text_table import columns_text, figures
from lockstep.command.entry_point import make_output_dir, options, output_dir, run_command
from lockstep.launch import forkserver
from lockstep.launch.machine import gpu_count
from lockstep.plan.schemas.run import ENGINES

HELP = """Measure what training costs beside its baselines:  python -m bench quick=true

Variants take turns on this machine. The table shows the median of their seconds, and the median of their ratios to
`bare` and `stock`, with the least and the most. It goes to the terminal, and as a CSV into logs/bench/<date>_<time>/.

  quick: false   true: 2 rounds, in place of 3, over fewer samples, in about 2 minutes on 2 cores
  only: all      one workload or several, only=linear,mlp
  root: data     the folder that holds MNIST/raw, or gets it

Workloads
  linear         linear regression, batch 32, 10 epochs
  mlp            an MLP on MNIST, batch 128, one epoch
  cnn            SimpleCNN on MNIST, batch 2000, one epoch; also in bf16

Variants
  bare           a plain loop over tensors, which records nothing
  stock          Lightning's own Trainer, with TensorBoard
  lockstep       engine=lightning, with TensorBoard and the record of every step
"""


@dataclass(frozen=True)
class BenchOptions:
    """The keys of the command."""

    quick: bool = False
    only: str = "all"
    root: str = "data"


def run_bench(options: BenchOptions) -> int:
    """Measure the chosen workloads; return exit status 0, whatever the ratios are."""
    names = [*workloads.WORKLOADS] if options.only == "all" else options.only.split(",")
    for name in names:
        if name not in workloads.WORKLOADS:
            raise option_error("only", name, "there is no such workload", workloads.WORKLOADS)
    from lockstep.runs.machine_report import versions_and_machine  # imports torch

    folder = output_dir("bench")
    make_output_dir(folder)
    machine = {"date": f"{datetime.now():%Y-%m-%d %H:%M}", **versions_and_machine(gpu=gpu_count() > 0)}
    print("".join(f"{key}: {value}\n" for key, value in machine.items() if value), end="", flush=True)
    sys.stdin = None  # with a terminal as stdin, runs would be in this process
    rows: list[workloads.Row] = []
    forkserver.start_forkserver(*ENGINES.values(), workloads.BASELINES)  # it imports them once
    for name in names:
        rows += workloads.measure(name, options.quick, str(Path(options.root).absolute()))
        save_table(folder / "bench.csv", rows)
    cells = [[cell if isinstance(cell, str) else figures(cell) for cell in row.values()] for row in rows]
    print(f"\n{columns_text([*rows[0]], cells, left=2)}\n  {folder}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(lambda words: run_bench(options(BenchOptions, words)), sys.argv[1:], HELP))
