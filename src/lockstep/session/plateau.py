"""A ReduceLROnPlateau steps by a value that the module logs: which, and whether it is there, is asked once for both
engines.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

from lockstep.config_error import config_error


def require_monitors(name: str, made: Any) -> None:
    """Refuse what `configure_optimizers` returns where a plateau names nothing to monitor.

    Raises:
        ConfigError: names the module.
    """
    if any(monitor is None for monitor in _monitors(made)):
        why = "its ReduceLROnPlateau monitors nothing"
        instead = 'in its configure_optimizers "monitor": NAME beside "scheduler", a NAME that it logs'
        raise config_error("model", name, why, instead)


def require_logged(name: str, schedules: Iterable[Any], interval: str, index: int, known: Mapping[str, Any]) -> None:
    """Refuse a plateau that steps now, by what nothing has logged.

    Args:
        index: of the epoch, or of the batch within it, from 1.
        known: the values that there are.

    Raises:
        ConfigError: names what it monitors and what there is.
    """
    for own in schedules:
        due = own.reduce_on_plateau and own.interval == interval and index % own.frequency == 0
        if due and own.strict and str(own.monitor) not in known:
            why = f"its ReduceLROnPlateau monitors {own.monitor}, which it does not log"
            raise config_error("model", name, why, f"one of {', '.join(sorted(known)) or 'what it logs'}")


def _monitors(made: Any) -> Iterator[Any]:
    """Return what each ReduceLROnPlateau monitors, in the forms that Lightning takes."""
    if isinstance(made, Mapping) and "scheduler" in made:
        if made.get("reduce_on_plateau", isinstance(made["scheduler"], ReduceLROnPlateau)):
            yield made.get("monitor")
    elif isinstance(made, Mapping):
        own = made.get("lr_scheduler")
        yield from [made.get("monitor")] if isinstance(own, ReduceLROnPlateau) else _monitors(own)
    elif isinstance(made, list | tuple):
        for own in made:
            yield from _monitors(own)
    elif isinstance(made, ReduceLROnPlateau):
        yield None
