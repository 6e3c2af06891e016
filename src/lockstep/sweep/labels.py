"""What the jobs of a sweep are called in its picture: by what varies among them, and by nothing else."""

from collections.abc import Sequence

from lockstep.sweep.rows import SweepRow

LONGEST = 24
"""Characters of a value."""


def numbers_of(rows: Sequence[SweepRow]) -> list[str]:
    """The keys that the sweep varies whose values are all numbers, in the order of the table."""
    return [key for key in (rows[0].varied if rows else ()) if all(_is_number(row.varied[key]) for row in rows)]


def worlds_differ(rows: Sequence[SweepRow]) -> bool:
    """Whether engine, strategy or devices vary."""
    return len({(row.engine, row.strategy, row.devices) for row in rows}) > 1


def label(row: SweepRow, rows: Sequence[SweepRow], without: Sequence[str] = ()) -> str:
    """`ddp×2 lr=0.01`; empty where nothing varies beside `without` (keys, or `devices`)."""
    several = {name: len({getattr(other, name) for other in rows}) > 1 for name in ("engine", "strategy", "devices")}
    strategy = row.strategy if several["strategy"] else ""
    if several["devices"] and "devices" not in without:
        strategy = f"{row.strategy}×{row.devices}"
    values = {key: value for key, value in row.varied.items() if key not in without}
    leaves = [key.rpartition(".")[2] for key in values]
    varied = [
        f"{leaf if leaves.count(leaf) == 1 else key}={shown(value)}"
        for leaf, (key, value) in zip(leaves, values.items(), strict=True)
    ]
    return " ".join(filter(None, [row.engine if several["engine"] else "", strategy, *varied]))


def shown(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
