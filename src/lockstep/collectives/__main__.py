"""`python -m lockstep.collectives`: the tour of the primitives."""

import sys
from collections.abc import Sequence
from functools import partial

from lockstep.command.entry_point import options, run_command

HELP = """Every primitive of torch.distributed on real ranks:  python -m lockstep.collectives devices=4

Shows what every rank holds before and after each primitive, checked against what it must hold, and what it costs
(n: the bytes of the full tensor, W: the ranks). The exit status is 1 if a check fails.

  devices: 4           ranks, on this machine (under torchrun: as many as it started)
  backend: auto        auto (nccl where each rank has a GPU of its own, else gloo), gloo, nccl
  timeout: 30          seconds that a rank waits for the others, to join and in each call
  root: 0              the rank that broadcasts and scatters, and gets what is reduced or gathered
"""


def show(words: Sequence[str]) -> int:
    from lockstep.collectives import tour  # with torch

    return tour.show(options(tour.Options, words))


main = partial(run_command, show, help_page=HELP)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
