"""Cache Hydra's composition: thousands of plans use the same few choices of groups, whose files do not change."""

import copy
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.defaults_list import Overrides, create_defaults_list
from omegaconf import DictConfig


@contextmanager
def remembered() -> Iterator[None]:
    """Create and compose a defaults list once for the same choices. Each plan gets a copy, with its own values."""
    lists: dict[bytes, Any] = {}
    composed: dict[int, DictConfig] = {}
    compose = ConfigLoaderImpl._compose_config_from_defaults_list

    def create(repo: Any, config_name: Any, overrides_list: list[Any], **options: Any) -> Any:
        overrides = Overrides(repo=repo, overrides_list=overrides_list)
        choices = overrides.override_choices, overrides.append_group_defaults, overrides.deletions
        sources = [(source.provider, source.path) for source in repo.get_sources()]
        key = pickle.dumps((config_name, choices, options, sources))
        if key not in lists:
            lists[key] = create_defaults_list(repo, config_name, overrides_list, **options)
        defaults = copy.copy(lists[key])
        defaults.config_overrides = overrides.config_overrides
        return defaults

    def composed_of(loader: ConfigLoaderImpl, defaults: list[Any], repo: Any) -> DictConfig:
        if id(defaults) not in composed:  # `lists` keeps them alive
            composed[id(defaults)] = compose(loader, defaults, repo)
        return copy.deepcopy(composed[id(defaults)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config_loader_impl, "create_defaults_list", create)
        patch.setattr(ConfigLoaderImpl, "_compose_config_from_defaults_list", composed_of)
        yield
