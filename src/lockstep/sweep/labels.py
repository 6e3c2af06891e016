"""What the jobs of a sweep are called in its picture: by what varies among them, and by nothing else."""

from collections.abc import Sequence

from lockstep.config_error import cut, is_number
from lockstep.schemas.keys import short_keys
from lockstep.sweep.rows import SweepRow

LONGEST = 24
"""Characters of a value."""


def numbers_of(rows: Sequence[SweepRow]) -> list[str]:
    """The keys that the sweep varies whose values are all numbers, in the order of the table."""
    return [key for key in (rows[0].varied if rows else ()) if all(is_number(row.varied[key]) for row in rows)]


def label(row: SweepRow, rows: Sequence[SweepRow], without: Sequence[str] = ()) -> str:
    """`ddp×2 lr=0.01`; empty where nothing varies beside `without` (keys, or `devices`)."""
    several = {name: len({getattr(other, name) for other in rows}) > 1 for name in ("engine", "strategy", "devices")}
    strategy = row.strategy if several["strategy"] else ""
    if several["devices"] and "devices" not in without:
        strategy = f"{row.strategy}×{row.devices}"
    values = {key: value for key, value in row.varied.items() if key not in without}
    varied = [f"{key}={shown(value)}" for key, value in short_keys(values).items()]
    return " ".join(filter(None, [row.engine if several["engine"] else "", strategy, *varied]))


def shown(value: object) -> str:
    return cut(f"{value:g}" if isinstance(value, float) else str(value), LONGEST)
