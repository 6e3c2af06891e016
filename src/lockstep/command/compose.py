"""The configuration that Hydra composes from overrides, and checks that Hydra leaves out."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, open_dict

from lockstep.base.config_error import config_error, typed_command
from lockstep.base.files import CONF
from lockstep.command.build import KEYS, named_options
from lockstep.plan.schemas.former import synonym
from lockstep.plan.schemas.groups import GROUPS, PARTS, SEVERAL, TARGETS, is_below, key_of, leaves, parts_of
from lockstep.plan.schemas.target import KEY
from lockstep.strategies import STRATEGIES

OPTIONS = {
    group: sorted(path.stem for path in (CONF / group).glob("*.yaml"))
    for group in (*GROUPS, *TARGETS, "experiment", "debug")
}
"""The options of each group, by their files in conf/."""


RESOLVERS: dict[str, Callable[..., Any]] = {
    "typed_command": typed_command,
    "commented_keys": lambda: (CONF / "train.yaml").read_text().split("\n\n")[1],  # for --help
    "ranks_of": lambda strategy, devices: devices if STRATEGIES[strategy].distributed else 1,  # for the launcher slurm
    "gpus_of": lambda accelerator, devices: devices if accelerator == "gpu" else None,
}
for name, resolver in RESOLVERS.items():
    OmegaConf.register_new_resolver(name, resolver, replace=True)


def user_folder() -> Path | None:
    """Return ./conf, with files of the user's, if it is not Lockstep's own folder."""
    folder = Path("conf").absolute()
    return folder if folder.is_dir() and not folder.samefile(CONF) else None


def compose_job(overrides: list[str]) -> tuple[DictConfig, Path]:
    """Return the configuration of one job, and the folder of its run. Hydra's errors are for `hydra_errors.explain`."""
    folder = None if any(key_of(word) == "hydra.searchpath" for word in overrides) else user_folder()
    searched = [] if folder is None else [f"hydra.searchpath=['file://{folder}']"]
    program = GlobalHydra.instance().hydra  # which may be the command, with a job of which this one is tried instead
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("train", [*searched, *overrides], return_hydra_config=True)
            run_dir = Path(config.hydra.run.dir).absolute()
    finally:
        GlobalHydra.instance().hydra = program
    with open_dict(config):
        del config["hydra"]
    check_words(overrides, config)
    return config, run_dir


def sets_folder(overrides: Iterable[str]) -> bool:
    """Whether the overrides name the folder of the run; otherwise the clock does."""
    return any(override.lstrip("+").startswith(("hydra.run.dir=", "hydra.sweep.dir=")) for override in overrides)


def without_plus(word: str) -> str:
    """Return an override without `+`, as Lightning's arguments are often typed; arguments of user code get `++`.

    So do those of an optimizer or a schedule that no file has, and the metrics of a model: what it calls refuses them.
    """
    rest = word.lstrip("+")
    key = rest.partition("=")[0]
    group, _, name = key.partition(".")
    adds = is_below(key, ("model.metrics",)) or (name and group in PARTS and not (options_with(key) or synonym(word)))
    if rest == key or (rest == word and not adds) or group not in (*KEYS, *OPTIONS):
        return word
    return f"++{rest}" if group in TARGETS and group != key else rest


def replacing(word: str) -> list[str]:
    """Return the overrides by which a target in place of an option, `model={_target_: …}`, replaces the group."""
    group, _, value = word.partition("=")
    replaces = value.startswith("{") and KEY in value and group in (*GROUPS, *TARGETS)
    return [f"~{group}", f"+{word}"] if replaces else [word]


def parse(words: Iterable[str]) -> list[Override]:
    """Parse overrides as Hydra does, without those that it cannot parse (flags, syntax errors)."""
    overrides = []
    for word in words:
        with suppress(Exception):  # Hydra raises it again
            overrides.append(OverridesParser.create().parse_override(word))
    return overrides


def check_words(words: Iterable[str], config: DictConfig) -> None:
    """Reject what Hydra accepts: merged options, and keys without an effect."""
    parts = parts_of(OmegaConf.to_container(config.model, resolve=False)) if config.get("model") else PARTS
    for override in parse(words):
        key, value = override.key_or_group, override.value()
        typed = (override.input_line or "").partition("=")[2]
        part = key.partition(".")[0]
        if part in PARTS and part not in parts:
            hint = f"an argument of the module, such as model.{key}, or {part}: ${{{part}}} in its YAML"
            raise config_error(key, typed, f"the chosen model configures its {part} itself", hint)
        if key == "data.batch_size" and str(config.data.get(KEY)).startswith("lockstep."):
            raise config_error(key, typed, "the size of a batch is a key of the run", f"batch_size={typed}")
        chosen = {*map(str, value)} - {"none"} if key in SEVERAL and isinstance(value, list) else ()
        if chosen and len(named_options(key, config.get(key))) < len(chosen):
            reason = "two of these files have a _target_, and were merged into one"
            raise config_error(key, typed, reason, f"'# @package {key}.NAME' as the first line of each")


def swept_keys(command: Iterable[str], job: Iterable[str]) -> tuple[str, ...]:
    """Return the keys of a job's overrides that the sweep varies: all but those with one value in the command."""
    varies = {override.key_or_group: override.is_sweep_override() for override in parse(command)}  # the last counts
    return tuple(dict.fromkeys(key for word in job if varies.get(key := key_of(word), True)))


def options_with(key: str) -> list[str]:
    """Return the options of a key's group that have this key."""
    group, _, name = key.partition(".")
    files = {option: yaml.safe_load((CONF / group / f"{option}.yaml").read_text()) for option in OPTIONS.get(group, ())}
    return [option for option, keys in files.items() if name.removeprefix(f"{option}.") in dict(leaves(keys))]
