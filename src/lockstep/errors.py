"""Expected failures, shown in one sentence without a traceback."""

import signal


class ExpectedError(RuntimeError):
    """The message is all that the user reads."""


class RendezvousTimeout(ExpectedError):
    """A rank that did not join within the timeout."""


class NotFinite(ExpectedError):
    """A NaN or infinite loss."""


class TrainingInterrupted(ExpectedError):
    """Training has stopped on request after an optimizer step, on every rank, and its state is in a checkpoint.

    `number` is the signal that requested it, where the ranks received one.
    """

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step
        self.number = signal.SIGTERM

    def __str__(self) -> str:
        return f"stopped after step {self.step}"
