"""Call one function in a process of its own, before any rank starts: code of the user's may be imported there.

The process is the only rank of a world, a copy of the fork server, so torch is there already; the server itself never
imports such code.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from lockstep.config_error import ConfigError
from lockstep.launch.failure import RankFailed, format_error
from lockstep.launch.private_dir import private_folder
from lockstep.launch.start import run_processes
from lockstep.launch.topology import RankContext
from lockstep.schemas.run import ProcessGroup
from lockstep.world import World


@dataclass(frozen=True)
class Call:
    """A call as the work of a rank."""

    world: World
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a module's function in a child of the fork server, with this process's environment; return its result.

    Raises:
        ConfigError: the function raised one, or its process died.
        RuntimeError: the function raised another error.
    """
    threads, group = torch.get_num_threads(), ProcessGroup("auto", "auto", 1.0)
    world = World("single", "spawn", False, 1, 1, "cpu", False, threads, group, str(private_folder()))
    try:
        (result, error), _ = run_processes(Call(world, function, arguments), __name__)
    except RankFailed as failure:
        raise ConfigError(f"The process that imports your code has failed: {failure.reason}; mend the code.") from None
    if error is not None:
        raise error
    return result


def run(work: Call, _context: RankContext) -> tuple[Any, RuntimeError | None]:
    """Make the call on the rank; return its result, or its error."""
    try:
        return work.function(*work.arguments), None
    except ConfigError:
        raise
    except SystemExit as error:
        reason = f"Your code calls sys.exit({error.code!r}) while it is imported; mend the code."
        raise ConfigError(reason) from None
    except Exception as error:
        return None, RuntimeError(format_error(error))
