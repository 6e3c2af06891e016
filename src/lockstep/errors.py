"""Ways a run ends before its work is done that one sentence tells: a traceback would say nothing more."""

import signal


class ExpectedError(RuntimeError):
    """Its sentence is all that the user reads."""


class RendezvousTimeout(ExpectedError):
    """A rank that never came to the meeting place."""


class PeerStopped(ExpectedError):
    """A rank that the system has stopped (SIGSTOP): it lives, and answers nobody. The sentence is about that rank."""

    def __init__(self, rank: int, why: str) -> None:
        super().__init__(rank, why)
        self.rank, self.why = rank, why

    def __str__(self) -> str:
        return self.why


class NotFinite(ExpectedError):
    """A loss that is no number any more."""


class TrainingInterrupted(ExpectedError):
    """Training has ended after an optimizer step, on every rank, because someone asked; a checkpoint holds it.

    `number` is the signal that asked, where whoever started the ranks told them by one.
    """

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step
        self.number = signal.SIGTERM

    def __str__(self) -> str:
        return f"stopped after step {self.step}"
