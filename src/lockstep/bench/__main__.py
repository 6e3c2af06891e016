"""`python -m lockstep.bench`: what training and starting cost, each beside its baseline."""

import sys
from collections.abc import Sequence

from lockstep.entry_point import options, run_command

COMMAND = "python -m lockstep.bench"

HELP = """What training and starting cost, each beside its baseline:  python -m lockstep.bench quick=true

Each ratio is of two variants that took turns on this machine; the table shows the median over the rounds with the least
and the most. A goal is judged only where the rounds are long and alike enough to tell.
The table goes to the terminal, and with a plot into logs/bench/<date>_<time>/.

  quick: false   true: fewer rounds over fewer samples, in 2 minutes on 2 cores
  only: all      one workload or several, only=linear,startup
  rounds: null   how often each variant takes its turn; null: 3, with quick=true 2
  root: data     the folder that holds MNIST/raw; workloads on MNIST are left out where it does not

Workloads
  linear         linear regression, batch 32, 10 epochs: the source's loop, a bare loop over tensors, both engines
  mlp            an MLP on MNIST, batch 128, one epoch: the same
  cnn            SimpleCNN on MNIST, batch 2000: the source's loop, both engines, and both in bf16
  module         a user's LightningModule, 2 epochs: Lightning's own Trainer, both engines; three forms of data
  monitoring     the MNIST MLP with TensorBoard as it is by default, by each engine: what of an epoch it takes
  threads        SimpleCNN on two ranks of one thread, against one process of two threads
  scaling        throughput over 1 to 8 ranks of one thread, an MLP on digits
  collectives    calls to other ranks in a step and in an epoch, counted
  startup        whole commands, beyond importing Lightning or torch: single, ddp, ddp_spawn, raw; --help; a wrong key
  sweep          what a further job costs beyond its training
"""


def bench(words: Sequence[str]) -> int:
    from lockstep.bench.runner import BenchOptions, run_bench

    return run_bench(options(BenchOptions, words, COMMAND))


def main(words: Sequence[str]) -> int:
    """Exit status 0: measured, whatever the ratios are; 1: a rank failed; 2: invalid input."""
    return run_command(bench, words, HELP)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
