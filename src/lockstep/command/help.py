"""The page of `--help`: the groups with their options, and the keys, as the comments in conf/ explain them."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import indent
from typing import Any

import yaml

from lockstep.base.config_error import as_typed, typed_command
from lockstep.base.files import CONF
from lockstep.base.private_api.hydra import get_args_parser

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


def user_folder(config_dir: str | None = None) -> Path | None:
    """Return the folder of the user's files: that of --config-dir, or else ./conf, if it is not Lockstep's own."""
    folder = Path(config_dir or "conf").absolute()
    return folder if folder.is_dir() and not folder.samefile(CONF) else None


def help_page() -> str:
    """Return the page, with each option's first comment line and the commented keys of train.yaml."""
    text = (CONF / "train.yaml").read_text()
    choices = [choice for choice in yaml.safe_load(text)["defaults"] if isinstance(choice, dict)]
    config_dir = get_args_parser().parse_known_args(sys.argv[1:])[0].config_dir
    roots, groups = [CONF, *filter(None, [user_folder(config_dir)])], []
    for group in sorted({path.parent.name for root in roots for path in root.glob("*/*.yaml")} - {"hydra"}):
        paths = sorted((path for root in roots for path in root.glob(f"{group}/*.yaml")), key=lambda path: path.stem)
        width = max(len(path.stem) for path in paths)
        groups.append(f"  {group}")
        for path in paths:
            mark = "; the default" if {group: path.stem} in choices else ""
            groups.append(f"    {path.stem:<{width}}  {_option(path.read_text(), mark)}")
    page = PAGE.format(command=typed_command(), groups="\n".join(groups), keys=indent(text.split("\n\n")[1], "  "))
    return page.replace("$", "$$")  # Hydra fills the page in as a string.Template


def _option(text: str, mark: str) -> str:
    """Return what an option is, whether it is the default, and its keys."""
    try:
        values = {**yaml.safe_load(text)}
    except (yaml.YAMLError, TypeError):  # a file of the user's
        values = {}
    comments = (line for line in text.splitlines() if line.startswith("# ") and "@package" not in line)
    comment = next(comments, f"# {values.get('_target_', 'an option of yours')}")
    listed = ", ".join(f"{key}: {value}" for key, value in _keys(values))
    shows_keys = listed and "@package _global_" not in text  # an experiment sets keys of other groups
    return f"{comment[2:]}{mark}" + (f"  ({listed})" if shows_keys else "")


def _keys(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys of an option, `net.hidden`, with their values; not those that refer to other keys."""
    for name, value in values.items():
        text = as_typed(value)
        if isinstance(value, Mapping) and value:
            yield from _keys(value, f"{prefix}{name}.")
        elif not str(name).startswith("_") and name != "name" and "${" not in text and "_target_" not in text:
            yield f"{prefix}{name}", text
