"""Which rank failed first, and why: each failing rank sends a Note, and the command picks the cause among them.

When one rank dies, its peers fail too a moment later, because their collectives break. Only the first is worth
reading: an error of a rank's own before a lost peer, a death without a note (a signal) before a lost peer, the earliest
of equals.
"""

import signal
import time
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lockstep.config_error import ConfigError
from lockstep.errors import ExpectedError, NotFinite, PeerStopped
from lockstep.launch.signals import end_tidily

LINGER = 3.0
"""Seconds that a rank whose peer is lost stays, so that the peer is seen to have failed first."""

LOST_PEER = (
    *("connection closed by peer", "connection reset", "broken pipe", "connection refused", "socket closed"),
    *("connection closed by remote peer", "ncclremoteerror", "remote process"),
)
"""gloo's words, then nccl's."""


class RankFailed(RuntimeError):
    """A rank ended before its work was done. The message carries its own traceback, or the signal that ended it.

    rank: None where the fork server failed, on which all ranks depend.
    final: a restart would fail again.
    """

    def __init__(self, rank: int | None, reason: str, final: bool = False) -> None:
        super().__init__(rank, reason, final)
        self.rank, self.reason, self.final = rank, reason, final

    def __str__(self) -> str:
        return self.reason if self.rank is None else f"rank {self.rank} failed: {self.reason}"


@dataclass(frozen=True)
class Note:
    """A failing rank's report to the command. `reason`: its error as the user reads it; `time`: time.time()."""

    rank: int
    time: float
    reason: str
    lost_peer: bool = False
    refusal: bool = False
    final: bool = False


def format_error(error: BaseException) -> str:
    """An error as the user reads it."""
    return (
        str(error)
        if isinstance(error, ExpectedError | ConfigError)
        else "".join(traceback.format_exception(error)).rstrip()
    )


def note_of(error: Exception, rank: int) -> Note:
    """This rank's error."""
    return Note(
        rank=error.rank if isinstance(error, PeerStopped) else rank,
        time=time.time(),
        reason=format_error(error),
        lost_peer=lost_a_peer(error),
        refusal=isinstance(error, ConfigError),
        final=isinstance(error, ConfigError | NotFinite),
    )


def delay_exit(error: BaseException) -> None:
    """Delay the exit of a rank that only lost a peer, so that the peer is seen to have failed first."""
    if lost_a_peer(error):
        signal.signal(signal.SIGTERM, end_tidily)
        time.sleep(LINGER)


def lost_a_peer(error: BaseException) -> bool:
    """Whether the error is a collective that broke because another rank went away."""
    from torch.distributed import DistError

    text = str(error).lower()
    return isinstance(error, DistError | RuntimeError) and any(sign in text for sign in LOST_PEER)


def first_failure(notes: Iterable[Note], exit_codes: Mapping[int, int]) -> ConfigError | RankFailed:
    """The error to raise in the command.

    Args:
        exit_codes: of the ranks seen to have ended too early before anyone was told to end (negative: a signal).
    """
    notes = sorted(notes, key=lambda note: note.time)
    final = any(note.final for note in notes)
    for note in notes:
        if note.refusal:
            return ConfigError(note.reason)
        if not note.lost_peer:
            return RankFailed(note.rank, note.reason, final)
    noted = {note.rank for note in notes}
    for rank, code in exit_codes.items():
        if rank not in noted:
            return RankFailed(rank, how_it_ended(code), final)
    if notes:
        return RankFailed(notes[0].rank, notes[0].reason, final)
    return RankFailed(None, "no rank left a trace of what happened")


def how_it_ended(code: int) -> str:
    """An exit code in words; a negative one is a signal."""
    if code == 0:
        return "it ended with status 0 before its work was done"
    if code > 0:
        return f"it ended with exit status {code} and no traceback"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = " (the system does so when memory runs out)" if code == -signal.SIGKILL else ""
    return f"it was ended by {name}{hint}"
