"""Cache Hydra's composition: thousands of plans use the same few choices of groups.

Each test process composes a defaults list once while none of its files changes; each plan gets a copy, into which its
values go as usual.
"""

import copy
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hydra._internal import config_loader_impl, defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.defaults_list import Overrides
from omegaconf import DictConfig


def files_of(repository: Any) -> list[tuple[str, int]]:
    """Return the files of the configurations with their modification times."""
    folders = [source.path for source in repository.get_sources() if source.scheme() == "file"]
    files = (Path(folder, name) for top in folders for folder, _, names in os.walk(top) for name in names)
    return [(str(file), file.stat().st_mtime_ns) for file in files if file.suffix in (".yaml", ".yml")]


CREATE, COMPOSE = defaults_list.create_defaults_list, ConfigLoaderImpl._compose_config_from_defaults_list
"""Hydra's functions."""


@contextmanager
def remembered() -> Iterator[None]:
    """Create and compose a defaults list once for the same choices."""
    lists: dict[bytes, Any] = {}
    composed: dict[int, DictConfig] = {}

    def create_defaults_list(repo: Any, config_name: Any, overrides_list: list[Any], **options: Any) -> Any:
        overrides = Overrides(repo=repo, overrides_list=overrides_list)
        choices = overrides.override_choices, overrides.append_group_defaults, overrides.deletions
        sources = [(source.provider, source.path) for source in repo.get_sources()]
        key = pickle.dumps((config_name, choices, options, sources, files_of(repo)))
        if key not in lists:
            lists[key] = CREATE(repo, config_name, overrides_list, **options)
        defaults = copy.copy(lists[key])
        defaults.config_overrides = overrides.config_overrides
        return defaults

    def composed_of(loader: ConfigLoaderImpl, defaults: list[Any], repo: Any) -> DictConfig:
        if id(defaults) not in composed:  # `lists` keeps them alive
            composed[id(defaults)] = COMPOSE(loader, defaults, repo)
        return copy.deepcopy(composed[id(defaults)])

    with pytest.MonkeyPatch.context() as patch:
        compose_by(patch, create_defaults_list, composed_of)
        yield


def compose_by(patch: pytest.MonkeyPatch, create: Callable[..., Any], compose: Callable[..., Any]) -> None:
    patch.setattr(config_loader_impl, "create_defaults_list", create)
    patch.setattr(ConfigLoaderImpl, "_compose_config_from_defaults_list", compose)
