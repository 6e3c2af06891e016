"""KEY=VALUE arguments of a command, as a dataclass whose fields have the defaults; what does not fit is refused."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lockstep.coerce import coerce, unknown_key
from lockstep.config_error import ConfigError

Options = TypeVar("Options")


def options(cls: type[Options], words: Sequence[str], command: str, **defaults: object) -> Options:
    """An instance of `cls` from the words, from `defaults` and from the fields' own; `command` is named in refusals."""
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    given = values(words, command)
    for key in given:
        if key not in names:
            raise unknown_key(key, given[key], names, command)
    own = {field.name: field.default for field in fields(cls)}  # type: ignore[arg-type]
    return coerce(cls, "", {**own, **defaults, **given})


def values(words: Sequence[str], command: str) -> dict[str, Any]:
    """The words as OmegaConf reads them: 2 is a number, true a truth value, tcp://… text."""
    for word in words:
        if not word.partition("=")[0] or "=" not in word:
            raise ConfigError(f"{word}: this is no KEY=VALUE; {command} --help lists the keys.")
    try:
        found = OmegaConf.to_container(OmegaConf.from_dotlist(list(words)), resolve=True)
    except (OmegaConfBaseException, yaml.YAMLError) as error:
        why = f"this cannot be read ({' '.join(str(error).split())})"
        raise ConfigError(f"{' '.join(words)}: {why}; write KEY=VALUE.") from None
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}
