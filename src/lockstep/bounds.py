"""Bounds of numbers, each refused in the same words wherever it stands."""

from lockstep.config_error import require


def positive(key: str, value: float) -> None:
    require(value > 0, key, value, "it must be above 0", f"{key}=0.01, say")


def not_negative(key: str, value: float) -> None:
    require(value >= 0, key, value, "it must be 0 or more", f"{key}=0")


def fraction(key: str, value: float) -> None:
    require(0 <= value < 1, key, value, "it must be at least 0 and below 1", f"{key}=0.5, say")
