"""The process group: its backend, rendezvous and timeout."""

import re
from dataclasses import dataclass
from typing import Literal

from lockstep.config_error import require

Backend = Literal["auto", "gloo", "nccl", "mpi"]

MEETING = re.compile(r"auto|file|env|file:///.+|tcp://[^:/\s]+:([1-9]\d{0,4})")


@dataclass(frozen=True)
class ProcessGroup:
    """`timeout`, in seconds, is for joining and for each collective."""

    backend: Backend
    init_method: str
    timeout: float

    def __post_init__(self) -> None:
        found = MEETING.fullmatch(self.init_method)
        fits = found is not None and int(found.group(1) or 1) < 2**16
        reason = "it is none of the ways to meet"
        hint = "auto, env, file, file:///PATH or tcp://HOST:PORT, say tcp://127.0.0.1:29500"
        require(fits, "process_group.init_method", self.init_method, reason, hint)
        key = "process_group.timeout"
        require(self.timeout > 0, key, self.timeout, "it must be above 0", f"{key}=60, say")
        require(self.timeout <= 1e6, key, self.timeout, "it must be at most 1000000 (eleven days)", f"{key}=60, say")
