"""Expected failures, shown in one sentence without a traceback, and the causes of an error."""

from collections.abc import Iterator


class ExpectedError(RuntimeError):
    """The message is all that the user reads."""


class NotFinite(ExpectedError):
    """A NaN or infinite loss."""


class TrainingInterrupted(ExpectedError):
    """Training has stopped on request after this optimizer step, on every rank, and its state is in a checkpoint."""

    def __str__(self) -> str:
        return f"stopped after step {self.args[0]}"


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those before it, as a traceback shows them; an error may be raised from itself."""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        yield cause
        seen.append(cause)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
