"""The catch-all while a plan is made: an unexpected error becomes one sentence that names the override.

It hides no bug: the error stays the cause of the ConfigError, and HYDRA_FULL_ERROR=1 shows its traceback.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from lockstep.command_line.hydra_errors import explained, odd_option
from lockstep.config_error import ConfigError, errors_as, shorten, typed_command

Attempt = Callable[[list[str]], object]
"""What has raised the error, to be done again with fewer overrides."""


def errors_as_config_errors(overrides: Sequence[str], attempt: Attempt) -> AbstractContextManager[None]:
    """Around what makes a configuration or a plan of overrides: whatever is raised within becomes one sentence."""
    return errors_as(lambda error: unexpected_as_config_error(error, overrides, attempt))


def unexpected_as_config_error(error: Exception, overrides: Sequence[str], attempt: Attempt) -> ConfigError:
    """Hydra's own errors as `explained` has them, any other with the override that it comes from, and as its cause."""
    try:
        refusal = explained(error, overrides)
        refusal.__cause__ = None
    except Exception:
        refusal = odd_option(overrides) or cannot_be_composed(error, culprit(error, overrides, attempt))
        refusal.__cause__ = error
    return refusal


def cannot_be_composed(error: Exception, overrides: Sequence[str]) -> ConfigError:
    named = shorten(" ".join(overrides)) or "the configuration"
    why = shorten(" ".join(f"{type(error).__name__}: {error}".split()))
    return ConfigError(f"{named}: this cannot be composed ({why}); write KEY=VALUE as {typed_command()} --help has it.")


def culprit(error: Exception, overrides: Sequence[str], attempt: Attempt) -> list[str]:
    """The override that raises the same error alone; all of them where none does."""
    words = [override for override in overrides if not override.startswith("-")]
    for word in words:
        try:
            attempt([word])
        except Exception as again:
            if (type(again), str(again)) == (type(error), str(error)):
                return [word]
    return words
