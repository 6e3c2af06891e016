"""Recognize and describe a rank that waited for others in vain."""

from lockstep.world import World


def timed_out(error: object) -> bool:
    """Whether an error, or its text, is that of a collective that timed out."""
    return "timed out" in str(error).lower()


def timeout_text(world: World) -> str:
    return f"{world.process_group.timeout:g} s (process_group.timeout)"
