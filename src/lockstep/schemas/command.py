"""What a run was asked for: nothing that anybody types as a key."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """`words`: the overrides of this run, as typed, behind the folder of configs that was given.

    `swept`: those of their keys that a sweep varies.
    """

    words: tuple[str, ...] = ()
    swept: tuple[str, ...] = ()
