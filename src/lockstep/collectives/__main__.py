"""`python -m lockstep.collectives`: the tour of the primitives, and the partition."""

import sys
from collections.abc import Sequence

from lockstep.command.entry_point import options, run_command

HELP = """Every primitive of torch.distributed on real ranks:  python -m lockstep.collectives devices=4

Write KEY=VALUE after the command, or after its subcommand `partition`.

python -m lockstep.collectives              what every rank holds before and after each primitive, checked against what
                                            it must hold, and what it costs (n: the bytes of the full tensor, W: the
                                            ranks); exit status 1 if a check fails
  devices: 4           ranks, on this machine (under torchrun: as many as it started)
  backend: auto        auto (nccl where each rank has a GPU of its own, else gloo), gloo, nccl, mpi
  init_method: auto    the rendezvous: auto, file, file:///PATH, env, tcp://HOST:PORT
  timeout: 30          seconds that a rank waits for the others, to join and in each call
  root: 0              the rank that broadcasts and scatters, and gets what is reduced or gathered

python -m lockstep.collectives partition    which rank gets which samples in which epoch, in training here and by
                                            torch's DistributedSampler (| ends a batch, * marks a repeat)
  devices: 3           ranks
  samples: 100         the integers 0 … 99
  batch_size_per_device: 2
  epochs: 2
  seed: 42             of the order
  drop_last: false     true: leave out the last batch where it is not full
"""


def dispatch(words: Sequence[str]) -> int:
    """Run the subcommand, or the tour without one."""
    from lockstep.collectives import partition, tour  # with torch

    if words[:1] == ["partition"]:
        return partition.show(options(partition.Options, words[1:]))
    return tour.show(options(tour.Options, words))


def main(words: Sequence[str]) -> int:
    """Return exit status 0: all as expected; 1: not, or a rank failed; 2: invalid input."""
    return run_command(dispatch, words, HELP)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
