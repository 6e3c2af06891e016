"""`python -m bench`: measure each workload, print the table and save it."""

import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bench import workloads
from bench.measurement import INCONCLUSIVE, Measurement, bench_table
from bench.runs import BASELINES, BenchContext
from lockstep.config_error import ConfigError, option_error
from lockstep.entry_point import make_output_dir, options, output_dir, run_command
from lockstep.files import save_table
from lockstep.launch import forkserver
from lockstep.launch.accelerator import gpu_count
from lockstep.launch.external_launcher import rank_from_env
from lockstep.launch.private_dir import private_folder
from lockstep.schemas.engine import ENGINES
from lockstep.text_table import width_shown

COMMAND = "python -m bench"
HELP = f"""Measure what training and starting cost, each beside its baseline:  python -m bench quick=true

Each ratio is of two variants that took turns on this machine; the table shows the median over the rounds with the least
and the most. A goal is judged only where all rounds agree, and last long enough.
The table goes to the terminal, and as a CSV into logs/bench/<date>_<time>/.

  quick: false   true: 2 rounds, in place of 3, over fewer samples, in about 4 minutes on 2 cores
  only: all      one workload or several, only=linear,startup
  root: data     the folder that holds MNIST/raw; workloads on MNIST are left out if it does not

Workloads{workloads.HELP}"""


@dataclass(frozen=True)
class BenchOptions:
    """The keys of the command."""

    quick: bool = False
    only: str = "all"
    root: str = "data"

    def names(self, known: Collection[str]) -> list[str]:
        """Return the chosen workloads in the order of the table."""
        chosen = known if self.only == "all" else self.only.split(",")
        for name in chosen:
            if name not in known:
                raise option_error("only", name, "there is no such workload", known)
        return [name for name in known if name in chosen]


def run_bench(options: BenchOptions) -> int:
    """Return exit status 0, whatever the ratios are."""
    if rank_from_env() is not None:
        raise ConfigError("bench: it starts its own ranks; run it without torchrun or SLURM.")
    names = options.names(workloads.WORKLOADS)
    from lockstep.monitor.texts import versions_and_machine  # imports torch

    began, folder = time.perf_counter(), output_dir("bench")
    make_output_dir(folder)
    machine = {"date": f"{datetime.now():%Y-%m-%d %H:%M}", **versions_and_machine(gpu=gpu_count() > 0)}
    print("".join(f"{key}: {value}\n" for key, value in machine.items() if value), end="", flush=True)
    sys.stdin = None  # with a terminal as stdin, runs would be in this process
    rows = measure(names, options, folder)
    results = [row.goal_met for row in rows if row.goal is not None]
    count = f"{results.count('yes')} of {len(results)} goals met, {results.count(INCONCLUSIVE)} {INCONCLUSIVE}"
    seconds = time.perf_counter() - began
    print(f"\n{bench_table(rows, width_shown())}\n\n{count}; {seconds:.0f} s\n  {folder}", flush=True)
    return 0


def measure(names: Sequence[str], options: BenchOptions, folder: Path) -> list[Measurement]:
    """Return all rows, saved after each workload; leave out what cannot be measured here, unless nothing else is."""
    forkserver.start_forkserver(*ENGINES.values(), *BASELINES.values(), workloads.COUNTER)  # it imports them once
    rows: list[Measurement] = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=private_folder()) as scratch:
        for number, name in enumerate(names, start=1):
            title = f"bench {number}/{len(names)}: {name}"
            context = BenchContext(options.quick, options.root, Path(scratch), title)
            try:
                rows += workloads.WORKLOADS[name](context)
                save_table(folder / "bench.csv", [row.csv_row() for row in rows])
            except ConfigError as error:
                if names == [name]:
                    raise
                context.report(f"left out: {error}")
    return rows


def bench(words: Sequence[str]) -> int:
    return run_bench(options(BenchOptions, words, COMMAND))


if __name__ == "__main__":
    raise SystemExit(run_command(bench, sys.argv[1:], HELP))
