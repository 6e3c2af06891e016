"""Inspect the module and the data before any rank starts: whether they can be created, and facts that the plan needs.

It runs in a child of the fork server, so that the command imports neither torch nor user code.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lockstep import schemas
from lockstep.config_error import ConfigError
from lockstep.files import short_path
from lockstep.launch import forkserver
from lockstep.launch.external_launcher import is_rank_zero, rank_from_env
from lockstep.launch.failure import RankFailed
from lockstep.launch.private_dir import private_folder
from lockstep.launch.start import run_processes
from lockstep.launch.topology import RankContext
from lockstep.run_summary import run_title
from lockstep.schemas.data import BATCH_SIZE
from lockstep.schemas.engine import ENGINES, EVERY_RUN
from lockstep.schemas.run import ProcessGroup
from lockstep.schemas.target import KEY
from lockstep.targets.locate import require_package
from lockstep.world import World

OPTIONS = (
    *("model", "data", "logger", "callbacks", "seed", "batch_size", "drop_last", "trainer"),
    *("max_epochs", "accumulate_grad_batches", "gradient_clip_val", "precision", "log_every_n_steps"),
)
"""Options of the plan that the inspection depends on. A module may read the last ones from `self.trainer`."""


def inspected(values: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a plan, with facts about its module and data; raise a ConfigError if these do not work."""
    for target in targets_in(values):
        require_package(f"{target.key}.{KEY}", target.path)
        if isinstance(target, schemas.Logger):
            target.require_package()
    announce(values)
    options, engine = {name: values[name] for name in OPTIONS}, values["engine"].name
    if rank_from_env() is not None or values["strategy"].in_process:
        values |= inspect(options)
    else:
        engines = [ENGINES[name] for name in ENGINES if engine in (name, "both")]
        forkserver.start_forkserver(*engines, *EVERY_RUN)
        values |= in_child(inspect, options)
    has_test_data = values["data"].test_size > 0
    return {**values, "batch_size": values["batch_size"] or BATCH_SIZE, "test": has_test_data and values["test"]}


@dataclass(frozen=True)
class Call:
    """A call as the work of a rank, the only one of its world."""

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


def inspect(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a plan, with facts about its module and data."""
    from lockstep.session.inspection import inspect_options  # with torch

    return inspect_options(options)


def targets_in(values: Mapping[str, Any]) -> list[schemas.Target]:
    """Return the targets of a plan's options."""
    data = [values["data"]] if values["data"].is_module else []
    return [values["model"], *data, *values["logger"], *values["callbacks"]]


def announce(values: Mapping[str, Any]) -> None:
    """Print what is to run, and in which folder; a resumed run says it with its checkpoint."""
    if is_rank_zero():
        print(run_title(values) + ("" if values["resume"] else f": {short_path(values['run_dir'])}"), flush=True)
