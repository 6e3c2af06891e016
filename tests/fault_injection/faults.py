"""Make one rank fail in the way, and at the moment, that the variable FAULT names.

FAULT is `kind@rank:moment` or `kind@rank:moment:count`. Nothing of the engine is replaced: its calls are counted, and
at the counted one the process itself does what a real fault does to it. When it did is left in the file FAULT_TIME.
"""

import io
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from lockstep.engine import state
from lockstep.engine import step as module_step
from lockstep.launch.signals import ENDING
from lockstep.launch.topology import RankContext


def arm(context: RankContext) -> None:
    """Prepare the fault of this rank, if it has one; each rank calls it before its engine."""
    kind, rank, name, count = parts()
    if rank == str(context.rank):
        MOMENTS[name](noted(KINDS[kind]), count)


def parts() -> tuple[str, str, str, int]:
    """Return kind, rank, moment and count; empty strings if there is no fault."""
    kind, _, rest = os.environ.get("FAULT", "").partition("@")
    rank, _, moment = rest.partition(":")
    name, _, count = moment.partition(":")
    return kind, rank, name, int(count or 1)


def noted(go_wrong: Callable[[], None]) -> Callable[[], None]:
    """Return a function that first writes the time to the file FAULT_TIME."""

    def going_wrong() -> None:
        if "FAULT_TIME" in os.environ:
            Path(os.environ["FAULT_TIME"]).write_text(str(time.time()))
        go_wrong()

    return going_wrong


def when_starting(go_wrong: Callable[[], None], count: int) -> None:
    go_wrong()


def in_step(go_wrong: Callable[[], None], count: int) -> None:
    """Fail between the gradient of optimizer step `count` and the step itself."""
    counted(module_step, "gradient_norms", go_wrong, count)


def in_validation(go_wrong: Callable[[], None], count: int) -> None:
    in_forward(go_wrong, count, training=False)


def in_forward(go_wrong: Callable[[], None], count: int, training: bool = True) -> None:
    calls = 0

    def look(module: torch.nn.Module, _inputs: Any) -> None:
        nonlocal calls
        if isinstance(module, torch.nn.Linear) and module.training == training:
            calls += 1
            if calls == count:
                go_wrong()

    register_module_forward_pre_hook(look)


def while_saving(go_wrong: Callable[[], None], count: int) -> None:
    """Fail when rank 0 has written half of the file, or another rank is about to send its part."""
    if os.environ["RANK"] != "0":
        counted(state, "gather_values", go_wrong, count)
        return
    right, calls = torch.save, 0

    def half(content: Any, file: Any, *arguments: Any, **options: Any) -> None:
        nonlocal calls
        to_disk = not isinstance(file, io.BytesIO)  # and not where torch pickles a tensor for other ranks
        calls += to_disk
        if to_disk and calls == count:
            buffer = io.BytesIO()
            right(content, buffer)
            file.write(buffer.getvalue()[: len(buffer.getvalue()) // 2])
            file.flush()
            go_wrong()
            file.seek(0)  # it was no end of this process
            file.truncate()
        right(content, file, *arguments, **options)

    torch.save = half  # type: ignore[assignment]


def counted(owner: Any, name: str, go_wrong: Callable[[], None], count: int) -> None:
    """Fail in call number `count` of a method."""
    right, calls = getattr(owner, name), 0

    def counting(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            go_wrong()
        return right(*arguments, **options)

    setattr(owner, name, counting)


def raise_error() -> None:
    raise ZeroDivisionError("on purpose")


def run_out_of_memory() -> None:
    """Allocate more than the limit that is set for this process."""
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    here = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (here + 2**26, resource.RLIM_INFINITY))
    try:
        torch.zeros(2**30)
    finally:  # the memory that was asked for is not taken; threads that start later find theirs
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def stop_at_a_prompt() -> None:
    answer = 6 * 7
    breakpoint()  # noqa: T100
    print("went on with", answer)


KINDS: dict[str, Callable[[], None]] = {
    "raise": raise_error,
    "exit": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "memory": run_out_of_memory,
    "breakpoint": stop_at_a_prompt,
    "quit": lambda: sys.exit(0),
    "server": lambda: os.kill(os.getppid(), signal.SIGKILL),
    **{number.name: partial(os.killpg, 0, number) for number in ENDING},
}
"""Of those that are no accident of one rank: its fork server is killed; a signal goes to all
processes of the command."""

MOMENTS: dict[str, Callable[[Callable[[], None], int], None]] = {
    "starting": when_starting,
    "step": in_step,
    "validation": in_validation,
    "forward": in_forward,
    "saving": while_saving,
}
