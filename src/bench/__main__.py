"""`python -m bench`: measure each workload, print the table and save it."""

import sys
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bench import workloads
from lockstep.base.config_error import ConfigError, option_error
from lockstep.base.files import save_table
from lockstep.base.text_table import rows_text, width_shown
from lockstep.command.entry_point import make_output_dir, options, output_dir, run_command
from lockstep.launch import forkserver
from lockstep.launch.accelerator import gpu_count
from lockstep.launch.private_dir import private_folder
from lockstep.plan.schemas.run import ENGINES

HELP = f"""Measure what training and starting cost, each beside its baseline:  python -m bench quick=true

Each ratio is of two variants that took turns on this machine; the table shows the median over the rounds with the least
and the most. A goal is judged only where all rounds agree, and last long enough.
The table goes to the terminal, and as a CSV into logs/bench/<date>_<time>/.

  quick: false   true: 2 rounds, in place of 3, over fewer samples, in about 4 minutes on 2 cores
  only: all      one workload or several, only=linear,startup
  root: data     the folder that holds MNIST/raw, or gets it; without a network workloads on MNIST are left out

Workloads{workloads.HELP}"""


@dataclass(frozen=True)
class BenchOptions:
    """The keys of the command."""

    quick: bool = False
    only: str = "all"
    root: str = "data"


def run_bench(options: BenchOptions) -> int:
    """Measure the chosen workloads, leaving out what cannot run here; return exit status 0, whatever the ratios are."""
    names = [*workloads.WORKLOADS] if options.only == "all" else options.only.split(",")
    for name in names:
        if name not in workloads.WORKLOADS:
            raise option_error("only", name, "there is no such workload", workloads.WORKLOADS)
    from lockstep.runs.monitor import versions_and_machine  # imports torch

    folder = output_dir("bench")
    make_output_dir(folder)
    machine = {"date": f"{datetime.now():%Y-%m-%d %H:%M}", **versions_and_machine(gpu=gpu_count() > 0)}
    print("".join(f"{key}: {value}\n" for key, value in machine.items() if value), end="", flush=True)
    sys.stdin = None  # with a terminal as stdin, runs would be in this process
    rows: list[dict[str, object]] = []
    forkserver.start_forkserver(*ENGINES.values(), *workloads.BASELINES.values())  # it imports them once
    with tempfile.TemporaryDirectory(prefix="bench-", dir=private_folder()) as scratch:
        for number, name in enumerate(names, start=1):
            title = f"bench {number}/{len(names)}: {name}"
            context = workloads.BenchContext(options.quick, str(Path(options.root).absolute()), Path(scratch), title)
            try:
                rows += workloads.WORKLOADS[name](context)
                save_table(folder / "bench.csv", rows)
            except ConfigError as error:
                if names == [name]:
                    raise
                context.report(f"left out: {error}")
    met = [row["met"] for row in rows if row["met"]]
    goals = f"{met.count('yes')} of {len(met)} goals met, {met.count(workloads.INCONCLUSIVE)} inconclusive"
    print(f"\n{rows_text(rows, width_shown(), left=2)}\n\n{goals}\n  {folder}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(lambda words: run_bench(options(BenchOptions, words)), sys.argv[1:], HELP))
