"""Which rank failed first, and with what: each failing rank leaves a note, the parent picks the cause among them.

When one rank dies, its peers fail too a moment later, because their collectives break. Only the first is worth
reading: an error of a rank's own before a lost peer, a death without a note (a signal) before a lost peer, the earliest
of equals.
"""

import json
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lockstep.ending import Ending, NotFinite, PeerStopped
from lockstep.launch.exit_codes import exit_codes
from lockstep.record import save_text
from lockstep.refusal import Refusal

LINGER = 3.0
"""Seconds that a rank whose peer is lost stays, so that the peer is seen to have failed first."""

LOST_PEER = (
    *("connection closed by peer", "connection reset", "broken pipe", "connection refused", "socket closed"),
    *("connection closed by remote peer", "ncclremoteerror", "remote process"),
)
"""gloo's words, then nccl's."""


class RankFailed(RuntimeError):
    """A rank ended before its work was done. The message carries its own traceback, or the signal that ended it."""

    def __init__(self, rank: int, reason: str) -> None:
        super().__init__(rank, reason)
        self.rank, self.reason = rank, reason

    def __str__(self) -> str:
        return f"rank {self.rank} failed: {self.reason}"


def told(error: BaseException) -> str:
    """An error as the user reads it."""
    return str(error) if isinstance(error, Ending | Refusal) else "".join(traceback.format_exception(error)).rstrip()


def leave_note(folder: Path, rank: int, error: Exception) -> None:
    """Write down this rank's error."""
    lost = lost_a_peer(error)
    note = {
        "rank": error.rank if isinstance(error, PeerStopped) else rank,
        "time": time.time(),
        "lost_peer": lost,
        "final": isinstance(error, Refusal | NotFinite),
        "refusal": str(error) if isinstance(error, Refusal) else None,
        "traceback": told(error),
    }
    save_text(folder / f"failed-{rank}.json", json.dumps(note))


def linger(error: BaseException) -> None:
    """A rank that only lost a peer waits to be ended, so that the peer is seen to have failed first."""
    if lost_a_peer(error):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(LINGER)


def lost_a_peer(error: BaseException) -> bool:
    """Whether the error is a collective that broke because another rank went away."""
    from torch.distributed import DistError

    text = str(error).lower()
    return isinstance(error, DistError | RuntimeError) and any(sign in text for sign in LOST_PEER)


def say_why_restarted(folder: Path, restarts: int, most: int) -> None:
    """On standard error, in one line."""
    failure = first_failure(folder, exit_codes(folder))
    *_, why = (failure.reason if isinstance(failure, RankFailed) else str(failure)).strip().splitlines()
    named = f"rank {failure.rank} failed: " if isinstance(failure, RankFailed) and failure.rank >= 0 else ""
    print(f"restart {restarts} of {most}: {named}{why}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class GaveUp:
    """What ranks return that were started anew for nothing: an attempt has failed of what would fail again."""

    attempt: Path


def hopeless(before: Path) -> bool:
    """Whether the ranks of an attempt failed of what will fail again."""
    notes = [json.loads(path.read_text()) for path in before.glob("failed-*.json")]
    return any(note["final"] for note in notes)


def first_failure(folder: Path, exit_codes: Mapping[int, int]) -> Refusal | RankFailed:
    """The error to raise in the parent.

    Args:
        folder: where the ranks left their notes.
        exit_codes: of the ranks seen to have ended badly before anyone was told to end (negative: a signal).
    """
    notes = sorted(
        (json.loads(path.read_text()) for path in folder.glob("failed-*.json")), key=lambda note: note["time"]
    )
    for note in notes:
        if note["refusal"]:
            return Refusal(note["refusal"])
        if not note["lost_peer"]:
            return RankFailed(note["rank"], note["traceback"])
    noted = {note["rank"] for note in notes}
    for rank, code in exit_codes.items():
        if rank not in noted:
            return RankFailed(rank, how_it_ended(code))
    if notes:
        return RankFailed(notes[0]["rank"], notes[0]["traceback"])
    return RankFailed(-1, "no rank left a trace of what happened")


def how_it_ended(code: int) -> str:
    """An exit code in words; a negative one is a signal."""
    if code >= 0:
        return f"it ended with exit status {code} and no traceback"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = " (the system does so when memory runs out)" if code == -signal.SIGKILL else ""
    return f"it was ended by {name}{hint}"
