"""The page of `--help`: the groups with their options, and the keys, as the comments in conf/ explain them."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import indent, wrap
from typing import Any

import yaml

from lockstep.conf import CONF
from lockstep.config_error import as_typed, typed_command
from lockstep.text_table import width_shown

COLUMN = re.compile(r".*?# | *\S+ {2,}")  # what comes before the text of a line: a key with its value, or an option

PAGE = """Train a net under any parallel strategy. Write KEY=VALUE after the command:

  train    {command} strategy=ddp devices=2
  compare  {command} engine=both strategy=ddp devices=2
  sweep    {command} -m strategy=ddp,fsdp devices=1,2
  own net  python -m lockstep.new mine
  test     {command} train=false ckpt_path=RUN/checkpoints/best.ckpt

Groups (GROUP=OPTION; an option's own keys are GROUP.KEY=VALUE)
logger and callbacks take several: logger=[OPTION,OPTION], logger.OPTION.KEY=VALUE
{groups}

Keys
{keys}

{command} --cfg job shows the whole configuration that a command would run.
"""


def help_page() -> str:
    """Return the page, with each option's first comment line and the commented keys of train.yaml."""
    text = (CONF / "train.yaml").read_text()
    defaults = {
        group: str(option)
        for choice in yaml.safe_load(text)["defaults"]
        if isinstance(choice, dict)
        for group, option in choice.items()
    }
    groups = []
    for folder in (path for path in sorted(CONF.iterdir()) if path.is_dir() and path.name != "hydra"):
        paths = sorted(folder.glob("*.yaml"))
        width = max(len(path.stem) for path in paths)
        groups.append(f"  {folder.name}")
        groups += [f"    {path.stem:<{width}}  {_option(path, path.stem == defaults[folder.name])}" for path in paths]
    page = PAGE.format(command=typed_command(), groups="\n".join(groups), keys=indent(text.split("\n\n")[1], "  "))
    if columns := width_shown():
        page = "\n".join(_fitted(line, columns) for line in page.split("\n"))
    return page.replace("$", "$$")  # Hydra fills the page in as a string.Template


def _fitted(line: str, width: int) -> str:
    """Return a line, wrapped to the width of the terminal below the beginning of its text."""
    column = COLUMN.match(line)
    below = " " * (column.end() if column and column.end() < width // 2 else 4)
    return "\n".join(wrap(line, width, subsequent_indent=below, break_long_words=False, break_on_hyphens=False))


def _keys(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys of an option, `net.hidden`, with their values; not those that refer to other keys."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _keys(value, f"{prefix}{name}.")
        elif not name.startswith("_") and name != "name" and "${" not in str(value):
            text = as_typed(value)
            if "_target_" not in text:
                yield f"{prefix}{name}", text


def _option(path: Path, is_default: bool) -> str:
    """Return what an option is, whether it is the default, and its keys."""
    text = path.read_text()
    comment = next(line for line in text.splitlines() if line.startswith("# ") and "@package" not in line)
    listed = ", ".join(f"{key}: {value}" for key, value in _keys(yaml.safe_load(text)))
    mark = "; the default" if is_default else ""
    shows_keys = listed and "@package _global_" not in text  # an experiment sets keys of other groups
    return f"{comment[2:]}{mark}" + (f"  ({listed})" if shows_keys else "")
