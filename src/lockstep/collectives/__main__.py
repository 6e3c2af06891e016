"""`python -m lockstep.collectives`: the tour, the partition and the mistakes; the manners of the command."""

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from lockstep import launch
from lockstep.cli_args import options
from lockstep.config_error import ConfigError
from lockstep.launch import RankFailed
from lockstep.launch.signals import ends_command
from lockstep.streams import outlive_readers

COMMAND = "python -m lockstep.collectives"

PAGE = """Every primitive of torch.distributed at work on real ranks:  python -m lockstep.collectives devices=4

Write KEY=VALUE behind the command, which is the tour, or one of the two that begin with a word of their own.

python -m lockstep.collectives              what every rank held before and after each primitive, and whether theory
                                            says so; exit status 1 if it does not
  devices: 4           ranks, on this machine (under torchrun: on each machine, and those that it started)
  backend: auto        auto (nccl where each rank has a GPU of its own, else gloo), gloo, nccl, mpi
  init_method: auto    where ranks meet: auto, file, file:///PATH, env, tcp://HOST:PORT
  timeout: 30          seconds that a rank waits for its peers, to join and in each call
  root: 0              the rank that broadcasts, scatters, and gets what is reduced or gathered
  bench: false         true: also latency and bandwidth over sizes from 4 bytes to 64 MiB, and the line t = α + n·β

python -m lockstep.collectives partition    which rank gets which samples in which epoch, in training here and by
                                            torch's DistributedSampler (| ends a batch, * marks a repeat)
  devices: 3           ranks
  samples: 100         the integers 0 … 99
  batch_size_per_device: 2
  epochs: 2
  seed: 42             of the order
  drop_last: false     true: leave out the last batch where it is not full

python -m lockstep.collectives mistakes     wrong use on purpose: what you read, and after how long
  devices: 2           ranks
  timeout: 5           seconds
  backend, init_method as above; on this machine alone, not under torchrun
"""


def tour(words: Sequence[str]) -> int:
    from lockstep.collectives.guide import guide
    from lockstep.collectives.tour import Tour, work_of

    context = launch.rank_from_env()
    started = {} if context is None else {"devices": context.local_world_size}
    return guide(work_of(options(Tour, words, COMMAND, **started)))


def partition(words: Sequence[str]) -> int:
    from lockstep.collectives.partition import Partition, text
    from lockstep.text_table import terminal_width

    if launch.is_rank_zero(launch.rank_from_env()):
        print(text(options(Partition, words, COMMAND), terminal_width()))
    return 0


def mistakes(words: Sequence[str]) -> int:
    from lockstep.collectives.mistakes import Mistakes, make_all

    return make_all(options(Mistakes, words, COMMAND))


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {"partition": partition, "mistakes": mistakes}


def main(words: Sequence[str]) -> int:
    """Exit status 0: all as it should be; 1: not, or a rank failed; 2: input that cannot be."""
    outlive_readers()
    if {"--help", "-h"} & set(words):
        print(PAGE, end="")
        return 0
    command = COMMANDS.get(words[0], tour) if words else tour
    context = None
    try:
        context = launch.rank_from_env()
        with nullcontext() if context else ends_command():
            status = command(words[1:] if command is not tour else words)
    except (ConfigError, RankFailed) as error:
        launch.print_exit_reason(str(error).replace("process_group.", ""), context)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        return 130
    if context is not None:
        launch.exit_now(status)
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
