"""A process's rank and the world size, and whether it is to stop early."""

from dataclasses import dataclass, field

from lockstep.config_error import require
from lockstep.launch.stop import Stop


@dataclass(frozen=True)
class RankContext:
    """rank of world_size over all machines; local_rank of local_world_size on this one.

    restarts: how often all ranks have been restarted after a failure.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    restarts: int = 0
    stop: Stop = field(default_factory=Stop, compare=False)

    def __post_init__(self) -> None:
        for key, rank, size in (
            ("RANK", self.rank, self.world_size),
            ("LOCAL_RANK", self.local_rank, self.local_world_size),
        ):
            reason = f"of {size} rank{'s' if size > 1 else ''} the last is {size - 1}"
            require(0 <= rank < size, key, rank, reason, f"{key}=0 to {size - 1}, or WORLD_SIZE={rank + 1}")

    @property
    def variables(self) -> dict[str, str]:
        """torchrun's environment variables, which torch and Lightning read."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "GROUP_RANK": str((self.rank - self.local_rank) // self.local_world_size),
        }
