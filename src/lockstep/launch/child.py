"""Call one function in a process of its own, before any rank starts: code of the user's may be imported there.

The process is the only rank of a world: the fork server itself never imports such code.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lockstep.base.config_error import ConfigError
from lockstep.launch.failure import RankFailed
from lockstep.launch.private_dir import private_folder
from lockstep.launch.start import run_processes
from lockstep.launch.topology import RankContext
from lockstep.plan.schemas.run import ProcessGroup
from lockstep.plan.world import World


@dataclass(frozen=True)
class Call:
    """A call as the work of a rank."""

    world: World
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a module's function in a child of the fork server; return its result. A ConfigError says why it failed."""
    import torch

    threads, group = torch.get_num_threads(), ProcessGroup("auto", "auto", 1.0)
    world = World("single", "spawn", False, 1, 1, "cpu", False, threads, group, str(private_folder()))
    try:
        return run_processes(Call(world, function, arguments), __name__)[0]
    except RankFailed as failure:
        raise ConfigError(f"The process that imports your code has failed: {failure.reason}; mend the code.") from None


def run(work: Call, _context: RankContext) -> Any:
    """Make the call in the child, as its engine."""
    try:
        return work.function(*work.arguments)
    except SystemExit as error:
        reason = f"Your code calls sys.exit({error.code!r}) while it is imported; mend the code."
        raise ConfigError(reason) from None
