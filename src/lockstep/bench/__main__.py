"""`python -m lockstep.bench`: the manners of the command."""

import sys
from collections.abc import Sequence

from lockstep.cli_args import options
from lockstep.config_error import ConfigError
from lockstep.launch import RankFailed, print_exit_reason
from lockstep.launch.signals import ends_command
from lockstep.streams import outlive_readers

COMMAND = "python -m lockstep.bench"

PAGE = """What training, starting and sweeping cost, each beside its yardstick:  python -m lockstep.bench quick=true

Every ratio is of two ways that took turns in one run on this machine; the median over the rounds is shown with the
least and the most. A goal is judged where the rounds are long and alike enough
to tell. The table goes to the terminal, and with a picture into logs/bench/<date>_<time>/.

  quick: false   true: fewer rounds over fewer samples, in 3 minutes on 2 cores
  only: all      one workload or several, only=s2,startup
  rounds: null   how often each way takes its turn; null: 3, with quick=true 2
  root: data     the folder that holds MNIST/raw; workloads on MNIST are left out where it does not

Workloads
  s2             linear regression, batch 32, 10 epochs: the source's loop, a bare loop over tensors, both engines
  mlp            an MLP on MNIST, batch 128, one epoch: the same
  cnn_2000       SimpleCNN on MNIST, batch 2000: the source's loop, both engines, and both in bf16
  cnn_250        the same with batch 250
  ddp_scaling    SimpleCNN by two ranks of one thread, against one process of two threads
  startup        whole commands: one process, ddp, ddp_spawn, against importing Lightning; --help; a wrong key
  sweep          what a further job costs beyond its training
  memory         resident memory of a rank, against importing Lightning
  collectives    calls to other ranks in a step and in an epoch, counted
  growth         cost over samples, 1e3 to 1e6, and throughput over ranks, 1 to 8
  roofline       arithmetic and memory traffic of SimpleCNN, counted, beside the achieved rate and the machine's own
"""


def main(words: Sequence[str]) -> int:
    """Exit status 0: measured, whatever came of it; 1: a rank failed; 2: input that cannot be."""
    outlive_readers()
    if {"--help", "-h"} & set(words):
        print(PAGE, end="")
        return 0
    try:
        from lockstep.bench.wanted import Wanted

        wanted = options(Wanted, words, COMMAND)
        from lockstep.bench.guide import guide

        with ends_command():
            return guide(wanted)
    except (ConfigError, RankFailed) as error:
        print_exit_reason(str(error), None)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
