"""Hydra's composition, remembered: thousands of plans are made of the same few choices of groups.

What Hydra composes of the defaults list, for as long as no file changes from which it reads, is composed once by each
process of the tests; each plan then gets a copy, and its values go into the copy as ever.
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
    """What the configurations are read from, and since when it is as it is."""
    folders = [source.path for source in repository.get_sources() if source.scheme() == "file"]
    files = (Path(folder, name) for top in folders for folder, _, names in os.walk(top) for name in names)
    return [(str(file), file.stat().st_mtime_ns) for file in files if file.suffix in (".yaml", ".yml")]


CREATE, COMPOSE = defaults_list.create_defaults_list, ConfigLoaderImpl._compose_config_from_defaults_list
"""Hydra's own."""


@contextmanager
def remembered() -> Iterator[None]:
    """Until the end, a defaults list is made once for the same choices, and composed once."""
    lists: dict[bytes, Any] = {}
    composed: dict[int, DictConfig] = {}

    def create_defaults_list(repo: Any, config_name: Any, overrides_list: list[Any], **options: Any) -> Any:
        own = Overrides(repo=repo, overrides_list=overrides_list)
        choices = own.override_choices, own.append_group_defaults, own.deletions
        sources = [(source.provider, source.path) for source in repo.get_sources()]
        key = pickle.dumps((config_name, choices, options, sources, files_of(repo)))
        if key not in lists:
            lists[key] = CREATE(repo, config_name, overrides_list, **options)
        known = copy.copy(lists[key])
        known.config_overrides = own.config_overrides
        return known

    def composed_of(loader: ConfigLoaderImpl, defaults: list[Any], repo: Any) -> DictConfig:
        if id(defaults) not in composed:  # these lists live as long as the memory of them
            composed[id(defaults)] = COMPOSE(loader, defaults, repo)
        return copy.deepcopy(composed[id(defaults)])

    with pytest.MonkeyPatch.context() as patch:
        compose_by(patch, create_defaults_list, composed_of)
        yield


def compose_by(patch: pytest.MonkeyPatch, create: Callable[..., Any], compose: Callable[..., Any]) -> None:
    patch.setattr(config_loader_impl, "create_defaults_list", create)
    patch.setattr(ConfigLoaderImpl, "_compose_config_from_defaults_list", compose)
