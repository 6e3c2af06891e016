"""The catch-all while a plan is composed: an unexpected error becomes one sentence that names the override.

It hides no bug: the error stays the cause of the ConfigError, and HYDRA_FULL_ERROR=1 shows its traceback.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from lockstep.command_line.hydra_errors import explained, odd_option
from lockstep.config_error import ConfigError, shorten, typed_command

Attempt = Callable[[list[str]], object]
"""What has raised the error, to be done again with fewer overrides."""


@contextmanager
def errors_as_config_errors(overrides: Sequence[str], attempt: Attempt) -> Iterator[None]:
    """Around what makes a configuration or a plan of overrides.

    Raises:
        ConfigError: whatever else is raised within, in one sentence.
    """
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        raise unexpected_as_config_error(error, overrides, attempt)  # noqa: B904  # it knows its cause


def unexpected_as_config_error(error: Exception, overrides: Sequence[str], attempt: Attempt) -> ConfigError:
    """Hydra's own errors as `explained` has them, any other with the override that it comes from, and as its cause."""
    try:
        refusal = explained(error, overrides)
        refusal.__cause__ = None
    except Exception:
        refusal = odd_option(overrides) or unforeseen(error, guilty(error, overrides, attempt))
        refusal.__cause__ = error
    return refusal


def unforeseen(error: Exception, overrides: Sequence[str]) -> ConfigError:
    named = shorten(" ".join(overrides)) or "the configuration"
    why = shorten(" ".join(f"{type(error).__name__}: {error}".split()))
    return ConfigError(f"{named}: this cannot be composed ({why}); write KEY=VALUE as {typed_command()} --help has it.")


def guilty(error: Exception, overrides: Sequence[str], attempt: Attempt) -> list[str]:
    """The override that raises the same error alone; all of them where none does."""
    words = [override for override in overrides if not override.startswith("-")]
    for word in words:
        try:
            attempt([word])
        except Exception as again:
            if (type(again), str(again)) == (type(error), str(error)):
                return [word]
    return words
